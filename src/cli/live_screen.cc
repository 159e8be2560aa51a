#include "cli/live_screen.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace tessera::cli {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";

// What signal handlers may touch.
std::atomic<int> g_ended_by{0};
std::atomic<bool> g_redraw{false};
int g_wake[2] = {-1, -1};
termios g_before{};
bool g_has_termios = false;

void Put(const char* text, std::size_t size) {
  while (size > 0) {
    const ssize_t n = write(STDOUT_FILENO, text, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text += n;
    size -= static_cast<std::size_t>(n);
  }
}

void SetRaw() {
  if (!g_has_termios) return;
  termios raw = g_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

void OnSignal(int number) {
  const int saved = errno;
  if (number == SIGTSTP) {
    // Ctrl-Z: the shell gets its screen back; fg comes back here.
    Put(kLeave, sizeof kLeave - 1);
    if (g_has_termios) tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
    raise(SIGSTOP);
    SetRaw();
    Put(kEnter, sizeof kEnter - 1);
    g_redraw = true;
  } else if (number == SIGWINCH) {
    g_redraw = true;
  } else {
    g_ended_by = number;
  }
  const char byte = 0;
  if (write(g_wake[1], &byte, 1) < 0) errno = 0;  // a full pipe wakes as well
  errno = saved;
}

constexpr std::array<int, 6> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};

}  // namespace

LiveScreen::LiveScreen() {
  if (pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) != 0) g_wake[0] = g_wake[1] = -1;
  g_has_termios = tcgetattr(STDIN_FILENO, &g_before) == 0;
  struct sigaction action{};
  action.sa_handler = &OnSignal;
  for (int number : kSignals) sigaction(number, &action, nullptr);
  SetRaw();
  Put(kEnter, sizeof kEnter - 1);
}

LiveScreen::~LiveScreen() {
  if (g_has_termios) tcsetattr(STDIN_FILENO, TCSAFLUSH, &g_before);
  Put(kLeave, sizeof kLeave - 1);
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  for (int number : kSignals) sigaction(number, &action, nullptr);
}

void LiveScreen::Draw(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += lines[i] + "\x1b[K";
    if (i + 1 < lines.size()) text += "\r\n";
  }
  text += "\x1b[J";
  Put(text.data(), text.size());
}

LiveScreen::Woken LiveScreen::Wait(std::chrono::milliseconds wait) {
  const auto end = std::chrono::steady_clock::now() + wait;
  bool keys = g_has_termios;
  for (;;) {
    if (g_ended_by != 0) return Woken::kLeave;
    if (g_redraw.exchange(false)) return Woken::kResize;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Woken::kTime;
    std::array<pollfd, 2> ready = {pollfd{g_wake[0], POLLIN, 0},
                                   pollfd{keys ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(ready.data(), ready.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
      return Woken::kTime;
    std::array<char, 64> bytes;
    if (ready[0].revents != 0) {
      while (read(g_wake[0], bytes.data(), bytes.size()) > 0) {
      }
    }
    if (ready[1].revents != 0) {
      const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
      if (n <= 0) keys = false;  // the terminal's other end is gone
      for (ssize_t i = 0; i < n; ++i) {
        if (bytes[static_cast<std::size_t>(i)] == 'q' || bytes[static_cast<std::size_t>(i)] == 'Q')
          return Woken::kLeave;
      }
    }
  }
}

int LiveScreen::EndedBy() { return g_ended_by; }

}  // namespace tessera::cli
