// The alternate screen of the terminal, given back whatever ends the program short of SIGKILL.
//
// Thread safety: one object a program, one thread. Not for stdout that is no terminal.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tessera::cli {

class LiveScreen {
 public:
  LiveScreen();   // alternate screen, no cursor, no echo, keys without Enter; catches SIGINT,
                  // SIGTERM, SIGHUP, SIGWINCH, SIGTSTP's return
  ~LiveScreen();  // everything as it was
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  // Draws over the last frame without clearing first, so that nothing flickers.
  void Draw(const std::vector<std::string>& lines);

  enum class Woken { kTime, kResize, kLeave };
  // Until `wait` passed, the window changed its size, or somebody pressed q or sent a signal to
  // end.
  Woken Wait(std::chrono::milliseconds wait);

  // The signal that asked to end; 0 = none.
  static int EndedBy();
};

}  // namespace tessera::cli
