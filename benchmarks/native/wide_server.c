/* A wide web on one address: thousands of hosts, told apart by their names, some of them slow, silent or in trouble.
 *
 *     wide_server PORT CERTIFICATE HOSTS LOG
 *
 * PORT is plain HTTP, PORT + 1 is TLS. Nothing listens on PORT + 2: those hosts refuse. On PORT + 3 the queue of
 * connections is full and nobody takes one out: SYNs are swallowed there. HOSTS has a line for each host: its kind
 * (f fine, s slow, q quiet: it reads the request and never answers, b has bursts of 503), least and most milliseconds of
 * an answer, and the phase of its bursts in milliseconds. Host number n is the one whose name begins with "hn.".
 *
 * Every request is one line of LOG: host, microseconds (monotonic) of its arrival and of the end of its answer, status,
 * whether it was for robots.txt. A quiet host's request ends when the client closes. It serves until its input ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 8192, LINKS = 30, BODY_BYTES = 12000, TEXT_BYTES = 1 << 16, BURST_MS = 15000, PERIOD_MS = 60000 };
enum { PLAIN, TLS, INPUT, ACCEPTED };

typedef struct { char kind; int least_ms, most_ms, phase_ms; } Host;

typedef struct {
  int fd, role, status, is_robots, watched;
  uint32_t host;
  unsigned long long page;
  int64_t arrived, due; /* microseconds */
  SSL *ssl;
  size_t heap_at; /* place among the answers that wait, from 1; 0: none waits */
  size_t have, sent, size;
  char *out;
  char head[HEAD_BYTES];
} Conn;

static Host *hosts;
static uint32_t host_count;
static FILE *journal;
static SSL_CTX *tls;
static int poller;
static int64_t began;
static char text[TEXT_BYTES];
static Conn **heap;
static size_t heap_size, heap_room;
static const char *WORDS[] = {"river", "garden", "letter", "market", "window", "harbour", "season", "paper",
                              "bridge", "summer", "engine", "forest", "music", "winter", "travel", "history"};

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint64_t mixed(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

/* answers that wait: a heap by their time */

static void place(Conn *conn, size_t at) {
  heap[at - 1] = conn;
  conn->heap_at = at;
}

static void sift(Conn *conn, size_t at) {
  while (at > 1 && heap[at / 2 - 1]->due > conn->due) {
    place(heap[at / 2 - 1], at);
    at /= 2;
  }
  for (size_t child; (child = 2 * at) <= heap_size; at = child) {
    if (child < heap_size && heap[child]->due < heap[child - 1]->due) child++;
    if (heap[child - 1]->due >= conn->due) break;
    place(heap[child - 1], at);
  }
  place(conn, at);
}

static void wait_until(Conn *conn, int64_t due) {
  conn->due = due;
  if (heap_size == heap_room) {
    heap_room = heap_room ? 2 * heap_room : 1024;
    heap = realloc(heap, heap_room * sizeof *heap);
    if (!heap) die("memory");
  }
  heap_size++;
  sift(conn, heap_size);
}

static void stop_waiting(Conn *conn) {
  size_t at = conn->heap_at;
  conn->heap_at = 0;
  Conn *last = heap[--heap_size];
  if (last != conn) sift(last, at);
}

/* a connection */

static void note(Conn *conn, int64_t ended) {
  fprintf(journal, "%u %lld %lld %d %d\n", conn->host, (long long)conn->arrived, (long long)ended, conn->status,
          conn->is_robots);
  conn->arrived = 0;
}

static void hang_up(Conn *conn) {
  if (conn->heap_at) stop_waiting(conn);
  if (conn->arrived) {
    conn->status = 0;
    note(conn, now_us());
  }
  if (conn->ssl) SSL_free(conn->ssl);
  close(conn->fd);
  free(conn->out);
  free(conn);
}

static void watch(Conn *conn, int events) {
  if (conn->watched == events) return;
  struct epoll_event event = {.events = (uint32_t)events, .data.ptr = conn};
  epoll_ctl(poller, conn->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, conn->fd, &event);
  conn->watched = events;
}

/* 1: something was moved, 0: not now, -1: it is over */
static int settled(Conn *conn, ssize_t got, size_t *count) {
  if (got > 0) {
    *count += (size_t)got;
    return 1;
  }
  if (conn->ssl) {
    int why = SSL_get_error(conn->ssl, (int)got);
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ) return 0;
    if (why == SSL_ERROR_WANT_WRITE) {
      watch(conn, EPOLLIN | EPOLLOUT);
      return 0;
    }
    return -1;
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static int receive(Conn *conn) {
  if (conn->have == HEAD_BYTES - 1) return -1;
  char *to = conn->head + conn->have;
  size_t room = HEAD_BYTES - 1 - conn->have;
  ssize_t got = conn->ssl ? SSL_read(conn->ssl, to, (int)room) : read(conn->fd, to, room);
  return settled(conn, got, &conn->have);
}

static void transmit(Conn *conn) {
  int64_t ended = 0; /* before the last write: a client may have it long before this process goes on */
  while (conn->sent < conn->size) {
    const char *from = conn->out + conn->sent;
    size_t left = conn->size - conn->sent;
    ended = now_us();
    ssize_t put = conn->ssl ? SSL_write(conn->ssl, from, (int)left) : write(conn->fd, from, left);
    int how = settled(conn, put, &conn->sent);
    if (how < 0) {
      hang_up(conn);
      return;
    }
    if (how == 0) {
      watch(conn, EPOLLIN | EPOLLOUT);
      return;
    }
  }
  note(conn, ended);
  free(conn->out);
  conn->out = NULL;
  watch(conn, EPOLLIN);
}

static size_t page(char *out, uint32_t host, unsigned long long number) {
  uint64_t draw = mixed(((uint64_t)host << 40) ^ number);
  char *at = out;
  at += sprintf(at, "<!DOCTYPE html><html lang=\"en\"><head><title>Page %llu of host %u</title></head><body>\n", number, host);
  for (int link = 1; link <= LINKS; link++) {
    draw = mixed(draw);
    at += sprintf(at, "<p><a href=\"/%s/%s-%s/%llu\">%s</a> ", WORDS[draw & 15], WORDS[draw >> 4 & 15],
                  WORDS[draw >> 8 & 15], number * LINKS + (unsigned)link, WORDS[draw >> 12 & 15]);
    size_t some = (size_t)(BODY_BYTES / LINKS - 100);
    memcpy(at, text + (draw >> 16) % (TEXT_BYTES - some), some);
    at += some;
    at += sprintf(at, "</p>\n");
  }
  at += sprintf(at, "</body></html>\n");
  return (size_t)(at - out);
}

static void answer(Conn *conn) {
  static char body[2 * BODY_BYTES];
  const char *kind = "text/html; charset=utf-8", *words = "OK";
  size_t length;
  Host *host = &hosts[conn->host];
  int64_t in_period = ((conn->due - began) / 1000 + host->phase_ms) % PERIOD_MS;
  conn->status = 200;
  if (host->kind == 'b' && in_period < BURST_MS) {
    conn->status = 503;
    words = "Service Unavailable";
    length = (size_t)sprintf(body, "<h1>Later</h1>\n");
  } else if (conn->is_robots) {
    kind = "text/plain";
    length = (size_t)sprintf(body, "User-agent: *\nDisallow: /private/\n");
  } else {
    length = page(body, conn->host, conn->page);
  }
  conn->out = malloc(length + 256);
  if (!conn->out) die("memory");
  conn->size = (size_t)sprintf(conn->out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", conn->status,
                               words, kind, length);
  memcpy(conn->out + conn->size, body, length);
  conn->size += length;
  conn->sent = 0;
  transmit(conn);
}

static void asked(Conn *conn) {
  char path[1024] = "", *name = strcasestr(conn->head, "\r\nHost: h"), *slash;
  sscanf(conn->head, "GET %1023s", path);
  conn->host = name ? (uint32_t)strtoul(name + 9, NULL, 10) : host_count;
  if (conn->host >= host_count) {
    hang_up(conn);
    return;
  }
  conn->have = 0; /* a client waits for its answer before it asks again */
  conn->is_robots = !strcmp(path, "/robots.txt");
  slash = strrchr(path, '/');
  conn->page = slash ? strtoull(slash + 1, NULL, 10) : 0;
  conn->arrived = now_us();
  Host *host = &hosts[conn->host];
  if (host->kind == 'q') return;
  uint64_t range = (uint64_t)(host->most_ms - host->least_ms) + 1;
  int64_t takes_ms = host->least_ms + (int64_t)(mixed((uint64_t)conn->arrived) % range);
  wait_until(conn, conn->arrived + 1000 * takes_ms);
}

static void work(Conn *conn, uint32_t events) {
  if (conn->out && events & EPOLLOUT) {
    transmit(conn);
    return;
  }
  for (;;) {
    int how = receive(conn);
    if (how < 0) {
      hang_up(conn);
      return;
    }
    if (how == 0) break;
    conn->head[conn->have] = 0;
    if (!conn->arrived && strstr(conn->head, "\r\n\r\n")) {
      asked(conn);
      return;
    }
  }
  if (!conn->out && (!conn->ssl || !SSL_want_write(conn->ssl))) watch(conn, EPOLLIN);
}

static void accept_all(int fd, int role) {
  for (int got; (got = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
    int yes = 1;
    setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Conn *conn = calloc(1, sizeof *conn);
    if (!conn) die("memory");
    conn->fd = got;
    conn->role = ACCEPTED;
    if (role == TLS) {
      conn->ssl = SSL_new(tls);
      SSL_set_fd(conn->ssl, got);
      SSL_set_accept_state(conn->ssl);
    }
    watch(conn, EPOLLIN);
  }
}

static int bound(int port, int backlog) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, backlog)) die("listen");
  return fd;
}

static void swallow(int port) { /* its queue has room for one: two that stay fill it */
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bound(port, 0);
  for (int one = 0; one < 3; one++) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(fd, (struct sockaddr *)&at, sizeof at);
    usleep(20000);
  }
}

static Conn *listener(int fd, int role) {
  Conn *conn = calloc(1, sizeof *conn);
  conn->fd = fd;
  conn->role = role;
  watch(conn, EPOLLIN);
  return conn;
}

static void read_hosts(const char *name) {
  FILE *file = fopen(name, "r");
  if (!file) die(name);
  Host host;
  while (fscanf(file, " %c %d %d %d", &host.kind, &host.least_ms, &host.most_ms, &host.phase_ms) == 4) {
    hosts = realloc(hosts, (host_count + 1) * sizeof *hosts);
    if (!hosts) die("memory");
    hosts[host_count++] = host;
  }
  fclose(file);
}

static void write_text(void) {
  size_t at = 0;
  for (uint64_t draw = 1; at < TEXT_BYTES - 16;) {
    draw = mixed(draw);
    at += (size_t)sprintf(text + at, "%s%s", WORDS[draw & 15], draw & 0x1f00 ? " " : ". ");
  }
  memset(text + at, ' ', TEXT_BYTES - at);
}

static void serve(void) {
  struct epoll_event events[256];
  for (;;) {
    int wait_ms = -1;
    if (heap_size) {
      int64_t left = heap[0]->due - now_us();
      wait_ms = left <= 0 ? 0 : (int)((left + 999) / 1000);
    }
    int count = epoll_wait(poller, events, 256, wait_ms);
    for (int at = 0; at < count; at++) {
      Conn *conn = events[at].data.ptr;
      if (conn->role == INPUT) {
        char byte;
        if (read(0, &byte, 1) <= 0) return;
      } else if (conn->role == ACCEPTED) {
        work(conn, events[at].events);
      } else {
        accept_all(conn->fd, conn->role);
      }
    }
    for (int64_t now = now_us(); heap_size && heap[0]->due <= now;) {
      Conn *conn = heap[0];
      stop_waiting(conn);
      answer(conn);
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: wide_server PORT CERTIFICATE HOSTS LOG\n");
    return 2;
  }
  int port = atoi(argv[1]);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  read_hosts(argv[3]);
  write_text();
  journal = fopen(argv[4], "w");
  if (!journal) die(argv[4]);
  setvbuf(journal, NULL, _IOFBF, 1 << 20);
  tls = SSL_CTX_new(TLS_server_method());
  SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate_chain_file(tls, argv[2]) != 1 || SSL_CTX_use_PrivateKey_file(tls, argv[2], SSL_FILETYPE_PEM) != 1) {
    ERR_print_errors_fp(stderr);
    return 1;
  }
  poller = epoll_create1(0);
  listener(bound(port, 4096), PLAIN);
  listener(bound(port + 1, 4096), TLS);
  listener(0, INPUT);
  swallow(port + 3);
  began = now_us();
  printf("%lld\n", (long long)began);
  fflush(stdout);
  serve();
  fclose(journal);
  return 0;
}
