#include "driver/bounded_caller.h"

#include <gtest/gtest.h>

#include <future>

namespace tessera::driver {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

BoundedCaller::TimePoint In(milliseconds d) { return steady_clock::now() + d; }

TEST(BoundedCaller, AnswersAndKeepsTheErrorOfTheWork) {
  BoundedCaller caller;
  auto first = caller.Post<int>("one", [] { return Result<int>(1); });
  EXPECT_EQ(first.Wait(In(milliseconds(10000))).value(), 1);
  auto second = caller.Post<int>("two", [] { return Result<int>(Fail(Code::kNotFound, "gone")); });
  EXPECT_EQ(second.Wait(In(milliseconds(10000))).error().message, "gone");
}

TEST(BoundedCaller, GivesUpOnAHangAndRecoversWhenItEnds) {
  BoundedCaller caller;
  auto release = std::make_shared<std::promise<void>>();
  std::shared_future<void> released = release->get_future().share();
  auto hangs = caller.Post<int>("card 0", [released] {
    released.wait();
    return Result<int>(1);
  });
  const auto timeout = hangs.Wait(In(milliseconds(10)));
  ASSERT_FALSE(timeout);
  EXPECT_EQ(timeout.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(timeout.error().message, "card 0: no answer in time");

  auto at_once = caller.Post<int>("card 0", [] { return Result<int>(2); });
  EXPECT_EQ(at_once.Wait(In(milliseconds(10000))).error().message,
            "card 0: still hangs in an earlier call");

  release->set_value();
  for (int i = 0; i < 1000; ++i) {
    auto again = caller.Post<int>("card 0", [] { return Result<int>(3); });
    const Result<int> answer = again.Wait(In(milliseconds(10000)));
    if (answer) {
      EXPECT_EQ(*answer, 3);
      return;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  FAIL() << "never recovered";
}

TEST(BoundedCaller, DestructorDoesNotWaitForAHang) {
  auto release = std::make_shared<std::promise<void>>();
  std::shared_future<void> released = release->get_future().share();
  {
    BoundedCaller caller;
    auto hangs = caller.Post<int>("card 0", [released] {
      released.wait();
      return Result<int>(1);
    });
    EXPECT_FALSE(hangs.Wait(In(milliseconds(5))));
  }
  release->set_value();
}

}  // namespace
}  // namespace tessera::driver
