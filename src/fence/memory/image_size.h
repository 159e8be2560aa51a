// What a code image will about take on a card: the charge before it is loaded, and afterwards where
// nothing measures it.
//
//   const std::uint64_t bytes = ImageBytes(image, {8, 6});
//
// Read are the forms that a driver takes: the compiler's wrapper, fat binaries, cubins (ELF), PTX
// text. Of a fat binary the image counts that the driver would choose for the card. Formats:
// fatbinary_section.h of the CUDA toolkit; ELF; PTX ISA.
//
// An image comes without its length; like the driver, this goes by the lengths in its headers.
// Where they lead to memory that is not there, the image counts as none. Pure functions, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::fence {

struct Capability {
  std::uint32_t major = 0, minor = 0;  // 0.0: not known, any image fits
};

struct ImageNeed {
  std::uint64_t code = 0;       // instructions
  std::uint64_t variables = 0;  // of device memory
};

// Whole blocks of 2 MiB for both; 0 where the image is none of the known forms.
std::uint64_t ImageBytes(const void* image, Capability card);
// The same of a file's content.
std::uint64_t ImageBytes(const void* image, std::size_t bytes, Capability card);

// Bytes of the module-wide variables that PTX text declares in device memory, and the text's own
// length as its code.
ImageNeed PtxNeed(std::string_view text);

}  // namespace tessera::fence
