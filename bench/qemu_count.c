/*
 * A plugin of qemu-user (qemu's -plugin option): prints how many instructions the program executed.
 * Debian ships qemu without its plugins and their header, so the few functions are declared here,
 * as qemu's documentation of TCG plugins describes them (version 1).
 */
#include <inttypes.h>
#include <stdio.h>

struct qemu_plugin_tb;
typedef uint64_t qemu_plugin_id_t;

enum { INLINE_ADD_U64 = 0 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                                  void (*run)(qemu_plugin_id_t id,
                                                              struct qemu_plugin_tb *block));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int op, void *to,
                                                     uint64_t add);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id,
                                           void (*run)(qemu_plugin_id_t id, void *data),
                                           void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
__attribute__((visibility("default"))) int
qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv);

static uint64_t executed;

/* Counts a block once with all of its instructions; only faults end one early, and they end the
 * program. */
static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &executed,
                                             qemu_plugin_tb_n_insns(block));
}

static void ended(qemu_plugin_id_t id, void *data)
{
    fprintf(stderr, "instructions %" PRIu64 "\n", executed);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
