/* Compares numbers in tests by their absolute distance, and prints a value that differs. */
#ifndef HR_TEST_CLOSE_H
#define HR_TEST_CLOSE_H

#include "../../test.h"

#define assert_close(found, wanted, distance)                                                      \
    do {                                                                                           \
        double found_ = (found), wanted_ = (wanted), distance_ = (distance);                       \
        if (!(found_ - wanted_ <= distance_ && wanted_ - found_ <= distance_))                     \
            fail_msg("%s is %.12g, not %.12g", #found, found_, wanted_);                           \
    } while (0)

#endif
