/*
 * Identifies file systems. statfs(2) returns a number that several types share (ext2 to ext4, all
 * FUSE file systems), so the exact name comes from the mount list, if that has the file's device.
 * It does not list btrfs subvolumes by device; they keep the name that belongs to the number.
 */
#include "storage/filesystem.h"

#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

/* Longer lines of the mount list are cut. The fields needed precede the options. */
#define LINE_MOST 8192

#define FUSE_MAGIC 0x65735546

static const struct {
    unsigned magic;
    const char *name;
    char trait; /* 'm' in memory, 'n' network, 'l' layered, 'c' own cache, 0 none */
} kinds[] = {
    {0xEF53, "ext4", 0},          {0x58465342, "xfs", 0},
    {0x9123683E, "btrfs", 0},     {0xF2F52010, "f2fs", 0},
    {0xCA451A4E, "bcachefs", 0},  {0x73717368, "squashfs", 0},
    {0xE0F5E1E2, "erofs", 0},     {0x2011BAB0, "exfat", 0},
    {0x4D44, "vfat", 0},          {0x5346544E, "ntfs", 0},
    {0x7366746E, "ntfs3", 0},     {0x9660, "iso9660", 0},
    {0x2FC12FC1, "zfs", 'c'},     {0x01021994, "tmpfs", 'm'},
    {0x858458F6, "ramfs", 'm'},   {0x958458F6, "hugetlbfs", 'm'},
    {0x9FA0, "proc", 'm'},        {0x62656572, "sysfs", 'm'},
    {0x6969, "nfs", 'n'},         {0xFF534D42, "cifs", 'n'},
    {0xFE534D42, "smb2", 'n'},    {0x517B, "smb", 'n'},
    {0x00C36400, "ceph", 'n'},    {0x0BD00BD0, "lustre", 'n'},
    {0x47504653, "gpfs", 'n'},    {0x19830326, "beegfs", 'n'},
    {0x01021997, "9p", 'n'},      {0x5346414F, "afs", 'n'},
    {0x6B414653, "afs", 'n'},     {0x7461636F, "ocfs2", 'n'},
    {0x01161970, "gfs2", 'n'},    {FUSE_MAGIC, "fuse", 'n'},
    {0x794C7630, "overlay", 'l'}, {0x61756673, "aufs", 'l'},
};

void hr__filesystem_of_magic(struct hr__filesystem *filesystem, long magic)
{
    *filesystem = (struct hr__filesystem){0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].magic == (unsigned)magic) {
            snprintf(filesystem->name, sizeof filesystem->name, "%s", kinds[i].name);
            filesystem->in_memory = kinds[i].trait == 'm';
            filesystem->network = kinds[i].trait == 'n';
            filesystem->layered = kinds[i].trait == 'l' || kinds[i].magic == FUSE_MAGIC;
            filesystem->own_cache = kinds[i].trait == 'c';
        }
}

/* Finds the type in a line "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE ..." if the
 * device matches. Spaces in mount points and roots are escaped. */
static int type_in_line(const char *line, dev_t device, char *name, size_t capacity)
{
    unsigned found_major, found_minor;
    char type[32];
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*u %*u %u:%u", &found_major, &found_minor) != 2 ||
        found_major != major(device) || found_minor != minor(device) ||
        sscanf(rest, " - %31s", type) != 1)
        return 0;
    snprintf(name, capacity, "%s", type);
    return 1;
}

int hr__filesystem_from_mounts(FILE *mounts, dev_t device, char *name, size_t capacity)
{
    char line[LINE_MOST];
    int found = 0, inside = 0; /* inside: in the rest of a line that did not fit */
    while (fgets(line, sizeof line, mounts)) {
        if (!inside && type_in_line(line, device, name, capacity))
            found = 1;
        inside = !strchr(line, '\n');
    }
    return found;
}

void hr__filesystem_look(struct hr__filesystem *filesystem, int fd, dev_t device)
{
    struct statfs status;
    hr__filesystem_of_magic(filesystem, fstatfs(fd, &status) ? 0 : (long)status.f_type);
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts)
        return;
    hr__filesystem_from_mounts(mounts, device, filesystem->name, sizeof filesystem->name);
    fclose(mounts);
    /* FUSE file systems on a block device have no server. */
    if (!strcmp(filesystem->name, "fuseblk"))
        filesystem->network = false;
    if (!strcmp(filesystem->name, "virtiofs"))
        filesystem->network = true;
}
