/* Asks the system's resolver for a name, ten times a second, until SIGTERM; prints how many times it asked, how many
 * times in vain, and how many times it had to wait for more than half a second. */
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t ended;
static void end(int signal) { (void)signal; ended = 1; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    long asked = 0, lost = 0, slow = 0;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    while (!ended && count > 1) {
        struct addrinfo *found = NULL;
        double begun = now();
        if (getaddrinfo(words[1], NULL, &hints, &found)) lost++; else freeaddrinfo(found);
        double took = now() - begun;
        asked++;
        slow += took > 0.5;
        struct timespec rest = {.tv_nsec = (took < 0.1 ? 0.1 - took : 0) * 1e9};
        nanosleep(&rest, NULL);
    }
    printf("%ld %ld %ld\n", asked, lost, slow);
    return 0;
}
