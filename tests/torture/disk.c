/* What a process does to some files on the disk, recorded, and made to fail; loaded by LD_PRELOAD.

   DISK_PREFIX  files whose path begins with this are watched; what follows it names them in the log
   DISK_LOG     where writes, syncs, new lengths and deletions are recorded, in the order in which they happen

   A record is a kind (w, s, t or u), the length of the name and of the data, an offset or new length, name and data.
   disk_fail(after, error, times, shortly) has watched calls fail: the first after so many, and those behind it. A write
   that fails shortly writes half of its data first. disk_calls() says how many watched calls there were. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 4096
#define NAME 32

static char names[FILES][NAME];
static char watched[FILES];
static long calls, fail_after = -1, fail_times;
static int fail_error, fail_shortly;

struct header { char kind; uint8_t name; uint16_t pad; uint32_t data; int64_t at; };

void disk_fail(long after, int error, long times, int shortly) {
    fail_after = after, fail_error = error, fail_times = times, fail_shortly = shortly;
}

long disk_calls(void) { return calls; }

static const char *suffix_of(const char *path) {
    const char *prefix = getenv("DISK_PREFIX");
    size_t length = prefix ? strlen(prefix) : 0;
    if (!length || !path || strncmp(path, prefix, length) || strlen(path + length) >= NAME) return NULL;
    return path + length;
}

/* The log is opened anew for each record, so that forked processes do not share a lock; the lock orders them. */
static int begin(void) {
    const char *path = getenv("DISK_LOG");
    if (!path) return -1;
    int log = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (log >= 0) syscall(SYS_flock, log, LOCK_EX);
    return log;
}

static void end(int log, char kind, const char *name, const void *data, uint32_t length, int64_t at) {
    if (log < 0) return;
    int error = errno;
    struct header header = {kind, (uint8_t)strlen(name), 0, length, at};
    struct iovec parts[3] = {{&header, sizeof header}, {(void *)name, strlen(name)}, {(void *)data, length}};
    if (kind) syscall(SYS_writev, log, parts, length ? 3 : 2);
    syscall(SYS_close, log);
    errno = error;
}

static int fails(int fd) {
    if (fd < 0 || fd >= FILES || !watched[fd]) return 0;
    calls++;
    if (fail_after < 0) return 0;
    if (fail_after-- > 0) return 0;
    fail_after = 0;
    if (fail_times-- > 0) return 1;
    fail_after = -1;
    return 0;
}

static int is_watched(int fd) { return fd >= 0 && fd < FILES && watched[fd]; }

static int opened(int fd, const char *path) {
    const char *suffix = suffix_of(path);
    if (fd >= 0 && fd < FILES) {
        watched[fd] = suffix != NULL;
        if (suffix) strcpy(names[fd], suffix);
    }
    return fd;
}

static int open_path(const char *path, int flags, mode_t mode) {
    return opened(syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode), path);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
        va_end(more); \
        return open_path(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (fd >= 0 && fd < FILES) watched[fd] = 0;
    return syscall(SYS_close, fd);
}

static ssize_t write_at(int fd, const void *data, size_t length, int64_t at, int moves) {
    int failing = fails(fd);
    size_t done = failing ? (fail_shortly ? length / 2 : 0) : length;
    int log = is_watched(fd) ? begin() : -1;
    if (is_watched(fd) && moves) at = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    ssize_t written = 0;
    if (done || !failing)
        written = moves ? syscall(SYS_write, fd, data, done) : syscall(SYS_pwrite64, fd, data, done, at);
    end(log, written > 0 ? 'w' : 0, is_watched(fd) ? names[fd] : "", data, written > 0 ? written : 0, at);
    if (failing && written <= 0) {
        errno = fail_error;
        return -1;
    }
    return written;
}

ssize_t write(int fd, const void *data, size_t length) { return write_at(fd, data, length, 0, 1); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return write_at(fd, data, length, at, 0); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) { return write_at(fd, data, length, at, 0); }

static int change(int fd, char kind, long number, int64_t at) {
    if (fails(fd)) {
        errno = fail_error;
        return -1;
    }
    int log = is_watched(fd) ? begin() : -1;
    int done = kind == 't' ? syscall(SYS_ftruncate, fd, at) : syscall(number, fd);
    end(log, done ? 0 : kind, is_watched(fd) ? names[fd] : "", NULL, 0, at);
    return done;
}

int fsync(int fd) { return change(fd, 's', SYS_fsync, 0); }
int fdatasync(int fd) { return change(fd, 's', SYS_fdatasync, 0); }
int ftruncate(int fd, off_t length) { return change(fd, 't', 0, length); }
int ftruncate64(int fd, off64_t length) { return change(fd, 't', 0, length); }

int unlink(const char *path) {
    const char *suffix = suffix_of(path);
    int log = suffix ? begin() : -1;
    int done = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    end(log, done ? 0 : 'u', suffix ? suffix : "", NULL, 0, 0);
    return done;
}
