/* Stands in for the decoders of sounds whose libraries this build lacks. They are refused by name.
 */
#include "codec/sound_format.h"

#ifndef HR__WITH_FLAC
const struct hr__sound_class hr__sound_flac = {0};
#endif
#ifndef HR__WITH_MP3
const struct hr__sound_class hr__sound_mp3 = {0};
#endif
#ifndef HR__WITH_VORBIS
const struct hr__sound_class hr__sound_vorbis = {0};
#endif
