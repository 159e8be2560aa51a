#include "node/program.h"

#include <elf.h>

#include <cstring>

#include "base/files.h"
#include "node/testing/scratch.h"

namespace tessera::node {
namespace {

using ProgramTest = ScratchTest;

TEST_F(ProgramTest, FindsAsExecDoes) {
  EXPECT_EQ(*FindProgram("/bin/true"), "/bin/true");
  EXPECT_NE(FindProgram("true")->find("/true"), std::string::npos);
  EXPECT_EQ(FindProgram("no-such-program-here").error().code, Code::kNotFound);
  EXPECT_EQ(FindProgram(folder_ + "/none").error().code, Code::kNotFound);
  ASSERT_TRUE(base::WriteFileAtomic(folder_ + "/text", "hello", 0644));
  EXPECT_EQ(FindProgram(folder_ + "/text").error().code, Code::kPermissionDenied);
  EXPECT_EQ(FindProgram(folder_).error().code, Code::kPermissionDenied);
}

TEST_F(ProgramTest, DynamicProgramsAndTheirScriptsAreFenceable) {
  ProgramKind shell = InspectProgram("/bin/sh");
  EXPECT_TRUE(shell.fenceable);
  EXPECT_FALSE(shell.interpreter.empty());
  ASSERT_TRUE(base::WriteFileAtomic(folder_ + "/script", "#! /bin/sh -e\necho\n", 0755));
  ProgramKind script = InspectProgram(folder_ + "/script");
  EXPECT_EQ(script.file, "/bin/sh");
  EXPECT_EQ(script.interpreter, shell.interpreter);
}

TEST_F(ProgramTest, ScriptsThatNameThemselvesEnd) {
  ASSERT_TRUE(base::WriteFileAtomic(folder_ + "/loop", "#!" + folder_ + "/loop\n", 0755));
  EXPECT_TRUE(InspectProgram(folder_ + "/loop").fenceable);
}

TEST_F(ProgramTest, StaticAndForeignProgramsAreNot) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  auto write = [this, &header] {
    std::string bytes(4096, '\0');
    std::memcpy(bytes.data(), &header, sizeof header);
    EXPECT_TRUE(base::WriteFileAtomic(folder_ + "/elf", bytes, 0755));
    return InspectProgram(folder_ + "/elf");
  };
  EXPECT_EQ(write().reason, "is statically linked");
  header.e_phnum = 0xffff;  // runs past the end of what was read
  EXPECT_FALSE(write().fenceable);
  header.e_phoff = ~std::uint64_t{0} - 8;
  EXPECT_FALSE(write().fenceable);
  header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(write().reason, "is a 32-bit program");
}

TEST_F(ProgramTest, HeadersAtTheEndOfALargeFileAreFound) {
  constexpr std::size_t kFar = 300 << 10;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = kFar;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  constexpr char kLoader[] = "/lib64/ld-linux-x86-64.so.2";
  Elf64_Phdr segment{};
  segment.p_type = PT_INTERP;
  segment.p_offset = kFar + sizeof segment;
  segment.p_filesz = sizeof kLoader;
  std::string bytes(kFar + sizeof segment + sizeof kLoader, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + kFar, &segment, sizeof segment);
  std::memcpy(bytes.data() + segment.p_offset, kLoader, sizeof kLoader);
  ASSERT_TRUE(base::WriteFileAtomic(folder_ + "/far", bytes, 0755));
  const ProgramKind kind = InspectProgram(folder_ + "/far");
  EXPECT_EQ(kind.interpreter, kLoader);
  EXPECT_TRUE(kind.fenceable);
}

TEST_F(ProgramTest, TheLoaderIsAsked) {
  EXPECT_TRUE(LoaderLoads(InspectProgram("/bin/true"), "libc.so.6"));
  EXPECT_FALSE(LoaderLoads(InspectProgram("/bin/true"), "libnothing.so"));
}

}  // namespace
}  // namespace tessera::node
