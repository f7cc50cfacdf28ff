/*
 * A library for LD_PRELOAD that reads the wall clock of a process from a file that tests write.
 *
 * RATELIMIT_CLOCK_FILE names a file of eight bytes, mapped shared: a little-endian int64 with the time in
 * microseconds since the epoch at which the wall clock stands still; 0 is real time. CLOCK_MONOTONIC is not
 * changed, so that timers and timeouts continue.
 *
 * The server's allocator reads the time before main, while it is still initializing, so nothing here allocates,
 * and real time comes directly from the kernel.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *clock_file;

/* If the clock stayed real without an error, tests would fail in misleading ways. */
static void give_up(const char *path) {
    static const char text[] = "clock shim: cannot map the file that RATELIMIT_CLOCK_FILE names: ";
    ssize_t ignored = write(2, text, sizeof text - 1);
    ignored = write(2, path, strlen(path));
    ignored = write(2, "\n", 1);
    (void)ignored;
    _exit(70);
}

/* If two threads both get here first, both map the same file, and either mapping works. Before libc is
 * initialized, getenv returns NULL; then the time is real, and the next call tries again. */
static const volatile int64_t *mapped(void) {
    if (clock_file != NULL) return clock_file;
    const char *path = getenv("RATELIMIT_CLOCK_FILE");
    if (path == NULL) return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) give_up(path);
    void *at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) give_up(path);
    close(fd);
    return clock_file = at;
}

/* The time at which the clock stands still, in microseconds; 0 for real time. */
static int64_t standing(void) {
    const volatile int64_t *file = mapped();
    return file == NULL ? 0 : __atomic_load_n(file, __ATOMIC_ACQUIRE);
}

/* Map the file before the server runs, because the server overwrites its environment to set its title. */
__attribute__((constructor)) static void at_start(void) {
    mapped();
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    int64_t us = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? standing() : 0;
    if (us == 0) return (int)syscall(SYS_clock_gettime, id, ts);
    ts->tv_sec = us / 1000000;
    ts->tv_nsec = us % 1000000 * 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec ts;
    (void)tz;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return (time_t)-1;
    if (out != NULL) *out = ts.tv_sec;
    return ts.tv_sec;
}
