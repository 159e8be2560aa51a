#include "base/yaml/yaml.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/plain_text.h"

namespace tessera::base {
namespace {

// `first_line`: where the document begins in the text, for errors.
Status Check(const YAML::Node& node, int depth, int first_line, int& left) {
  if (--left < 0) return Fail(Code::kInvalidArgument, "YAML of more than 100,000 nodes");
  if (depth > kMaxYamlDepth) return Fail(Code::kInvalidArgument, "YAML nested more than 64 deep");
  if (node.IsSequence()) {
    for (const YAML::Node& child : node) {
      if (Status ok = Check(child, depth + 1, first_line, left); !ok) return ok;
    }
  } else if (node.IsMap()) {
    std::set<std::string> keys;
    for (const auto& pair : node) {
      const YAML::Node& key = pair.first;
      const YAML::Node& value = pair.second;
      if (!key.IsScalar()) return Fail(Code::kInvalidArgument, "YAML key that is no plain text");
      if (!keys.insert(key.Scalar()).second) {
        return Fail(Code::kInvalidArgument,
                    "key '" + base::Shown(key.Scalar()) + "' stands twice (line " +
                        std::to_string(first_line + key.Mark().line + 1) + ")");
      }
      if (Status ok = Check(value, depth + 1, first_line, left); !ok) return ok;
    }
  }
  return {};
}

// The parser recurses for every nested bracket and every indentation; a text that nests by the
// thousand never reaches it.
bool NestsTooDeep(std::string_view text) {
  constexpr int kMost = 1000;
  int brackets = 0, dashes = 0;
  for (char c : text) {
    brackets += c == '[' || c == '{' ? 1 : 0;
    brackets -= c == ']' || c == '}' ? 1 : 0;
    dashes = c == '-' || c == '?' || c == ':' ? dashes + 1 : c == ' ' ? dashes : 0;
    if (brackets > kMost || dashes > kMost) return true;
  }
  return false;
}

// Document by document: yaml-cpp's own LoadAll finds ever another empty one where a token stands
// that begins none.
Result<YAML::Node> LoadDocument(const std::string& text, int first_line, int& left) {
  try {
    YAML::Node node = YAML::Load(text);
    if (Status ok = Check(node, 0, first_line, left); !ok) return Fail(ok.error());
    return node;
  } catch (const YAML::Exception& e) {
    return Fail(Code::kInvalidArgument,
                "YAML, line " + std::to_string(first_line + e.mark.line + 1) + ": " + e.msg);
  }
}

struct DocumentText {
  int first_line = 0;
  std::string text;
};

// Cut at the lines "---".
std::vector<DocumentText> Documents(std::string_view text) {
  std::vector<DocumentText> documents(1);
  for (int line_number = 0; !text.empty(); ++line_number) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    if (line.starts_with("---") &&
        (line.size() == 3 || std::string_view(" \t\r\n").find(line[3]) != line.npos))
      documents.push_back({line_number, ""});
    documents.back().text += line;
  }
  return documents;
}

}  // namespace

Result<std::vector<YAML::Node>> LoadYaml(std::string_view text) {
  if (!IsPlainText(text) || NestsTooDeep(text)) {
    return Fail(Code::kInvalidArgument, "not a YAML text");
  }
  const std::vector<DocumentText> documents = Documents(text);
  if (documents.size() > kMaxYamlDocuments)
    return Fail(Code::kInvalidArgument, "YAML of more than 1,000 documents");
  std::vector<YAML::Node> nodes;
  int left = kMaxYamlNodes;
  for (const DocumentText& document : documents) {
    Result<YAML::Node> node = LoadDocument(document.text, document.first_line, left);
    if (!node) return Fail(node.error());
    if (!node->IsNull()) nodes.push_back(*node);
  }
  return nodes;
}

}  // namespace tessera::base
