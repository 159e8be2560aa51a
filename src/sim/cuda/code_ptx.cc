#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "sim/cuda/code_image.h"

namespace tessera::sim {
namespace {

// Words of PTX: names and directives ('.entry', '%r1', '_Z4vadd', '64'), single punctuation, no
// comments.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  // Empty at the end of the text.
  std::string_view Next() {
    SkipBlanks();
    if (at_ >= text_.size()) return {};
    const std::size_t start = at_++;
    if (text_[start] == '"') {
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') ++at_;
      if (at_ < text_.size()) ++at_;
    } else if (IsWord(text_[start])) {
      while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  std::string_view Peek() {
    const std::size_t at = at_;
    const std::string_view word = Next();
    at_ = at;
    return word;
  }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.' ||
           c == '%' || c == '@';
  }
  void SkipBlanks() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const std::size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 2;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::optional<std::uint64_t> Number(std::string_view word) {
  int base = 10;
  if (word.starts_with("0x") || word.starts_with("0X")) {
    word.remove_prefix(2);
    base = 16;
  }
  while (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// Bytes of '.u64', '.b8', '.f32' ...; 0 when it is not a type.
std::uint32_t TypeBytes(std::string_view word) {
  if (word.size() < 3 || word[0] != '.' ||
      std::string_view("busf").find(word[1]) == std::string_view::npos)
    return 0;
  const auto bits = Number(word.substr(2));
  return bits && (*bits == 8 || *bits == 16 || *bits == 32 || *bits == 64 || *bits == 128)
             ? static_cast<std::uint32_t>(*bits / 8)
             : 0;
}

struct Variable {
  std::string name;
  std::uint32_t element = 0, align = 0;
  std::uint64_t size = 0;
  bool managed = false;
  std::vector<std::uint8_t> content;
};

// After the state space (.param, .global, .shared ...): '.align 4 .b8 name[12] = {1, 2}'. Stops
// before what ends it.
Variable ReadVariable(Words& words) {
  Variable variable;
  std::uint32_t vector = 1;
  while (true) {
    const std::string_view word = words.Peek();
    if (word.empty() || word == "," || word == ")" || word == ";" || word == "{") return variable;
    words.Next();
    if (word == ".align") {
      variable.align = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(Number(words.Next()).value_or(0), 4096));
    } else if (word == ".managed") {
      variable.managed = true;
    } else if (word == ".v2" || word == ".v4") {
      vector = word[2] - '0';
    } else if (TypeBytes(word) != 0) {
      variable.element = TypeBytes(word) * vector;
      variable.size = variable.element;
    } else if (word == "[") {
      const auto count = Number(words.Peek());
      if (count && *count < (std::uint64_t{1} << 40)) variable.size *= *count;
      while (!words.Peek().empty() && words.Next() != "]") {
      }
    } else if (word == "=") {
      const bool list = words.Peek() == "{";
      if (list) words.Next();
      int depth = list ? 1 : 0;
      bool negative = false;
      while (true) {
        const std::string_view item = words.Peek();
        if (item.empty() || item == ";") break;
        words.Next();
        if (item == "{") ++depth;
        if (item == "}" && --depth <= 0) break;
        if (item == "-") negative = true;
        if (item.starts_with("0f") || item.starts_with("0F") || item.starts_with("0d") ||
            item.starts_with("0D") || Number(item)) {
          std::uint64_t bits = Number(item).value_or(0);
          if (!Number(item)) {
            const std::string hex = "0x" + std::string(item.substr(2));
            bits = Number(hex).value_or(0);
          }
          if (negative) bits = 0 - bits;
          negative = false;
          if (variable.content.size() + variable.element <= variable.size &&
              variable.content.size() < (1u << 28)) {
            for (std::uint32_t i = 0; i < variable.element; ++i) {
              variable.content.push_back(i < 8 ? static_cast<std::uint8_t>(bits >> (8 * i)) : 0);
            }
          }
        }
        if (!list) break;
      }
    } else if (word[0] != '.' && word != "(" && word != "]" && variable.name.empty()) {
      variable.name = word;
    } else if (word == "(") {
      while (!words.Peek().empty() && words.Peek() != ")") {
        if (words.Next() == ".managed") variable.managed = true;
      }
      words.Next();
    }
  }
}

void ReadParams(Words& words, KernelInfo& kernel) {
  std::uint32_t offset = 0;
  while (true) {
    const std::string_view word = words.Peek();
    if (word.empty()) return;
    words.Next();
    if (word == ")") return;
    if (word != ".param") continue;
    const Variable param = ReadVariable(words);
    if (param.size == 0 || param.size > 65536 || kernel.params.size() >= 4096) continue;
    const std::uint32_t align = std::max<std::uint32_t>({param.align, param.element, 1});
    offset = (offset + align - 1) / align * align;
    kernel.params.push_back({offset, static_cast<std::uint32_t>(param.size)});
    offset += static_cast<std::uint32_t>(param.size);
  }
}

KernelInfo ReadKernel(Words& words) {
  KernelInfo kernel;
  kernel.name = words.Next();
  kernel.registers = 32;  // JIT decides on a card; what ptxas gives small kernels
  while (true) {
    const std::string_view word = words.Peek();
    if (word.empty() || word == ";") return kernel;
    words.Next();
    if (word == "(") ReadParams(words, kernel);
    if (word == ".maxntid" || word == ".reqntid") {
      std::uint64_t threads = 1;
      for (auto n = Number(words.Peek()); n; n = Number(words.Peek())) {
        threads *= std::clamp<std::uint64_t>(*n, 1, 1024);
        threads = std::min<std::uint64_t>(threads, 1024);
        words.Next();
        if (words.Peek() == ",") words.Next();
      }
      kernel.max_threads = static_cast<std::uint32_t>(threads);
    }
    if (word == ".reqnctapercluster") {
      for (int i = 0; i < 3; ++i) {
        const auto n = Number(words.Peek());
        if (!n) break;
        kernel.cluster[i] = static_cast<std::uint32_t>(*n);
        words.Next();
        if (words.Peek() == ",") words.Next();
      }
    }
    if (word != "{") continue;
    for (int depth = 1; depth > 0;) {
      const std::string_view inner = words.Next();
      if (inner.empty()) return kernel;
      if (inner == "{") ++depth;
      if (inner == "}") --depth;
      if (inner == ".shared" || inner == ".local") {
        const Variable variable = ReadVariable(words);
        auto& bytes = inner == ".shared" ? kernel.shared_bytes : kernel.local_bytes;
        if (variable.size < (1u << 30)) bytes += static_cast<std::uint32_t>(variable.size);
      }
    }
    return kernel;
  }
}

}  // namespace

ImageResult ParsePtx(std::string_view text) {
  ImageResult result;
  result.error = ImageError::kInvalidPtx;
  CodeImage& image = result.image;
  image.kind = CodeKind::kPtx;
  image.code_bytes = text.size();
  Words words(text);
  bool version = false;
  std::uint64_t constants = 0;
  for (int depth = 0;;) {
    const std::string_view word = words.Next();
    if (word.empty()) break;
    if (word == "{") ++depth;
    if (word == "}" && depth > 0) --depth;
    if (depth > 0) continue;
    if (word == ".version") {
      version = Number(words.Peek().substr(0, words.Peek().find('.'))).has_value();
    } else if (word == ".target") {
      std::string_view target = words.Next();
      if (target.starts_with("sm_")) {
        target.remove_prefix(3);
        while (!target.empty() && !std::isdigit(static_cast<unsigned char>(target.back())))
          target.remove_suffix(1);
        image.arch = image.ptx_version =
            static_cast<std::uint32_t>(Number(target).value_or(0) & 0xFFF);
      }
    } else if (word == ".entry") {
      KernelInfo kernel = ReadKernel(words);
      if (!kernel.name.empty()) image.kernels.insert_or_assign(kernel.name, std::move(kernel));
    } else if (word == ".global" || word == ".const") {
      Variable variable = ReadVariable(words);
      if (variable.name.empty()) continue;
      if (word == ".const") constants += variable.size;
      image.variables.insert_or_assign(variable.name,
                                       VariableInfo{variable.name, variable.size, word == ".const",
                                                    variable.managed, std::move(variable.content)});
    }
  }
  for (auto& [name, kernel] : image.kernels)
    kernel.const_bytes = static_cast<std::uint32_t>(constants);
  result.ok = version && image.arch != 0;
  return result;
}

}  // namespace tessera::sim
