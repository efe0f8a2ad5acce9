// The process that holds the namespaces of a pod: it waits for SIGTERM, and reaps processes whose parent ended.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int signal) { _exit(0); }

static void reap(int signal) {
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
