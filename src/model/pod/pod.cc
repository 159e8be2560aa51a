#include "model/pod/pod.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/plain_text.h"
#include "base/yaml/yaml.h"
#include "contract/resources.h"
#include "model/quantity.h"

namespace tessera::model {
namespace {

using base::Shown;
using contract::kResourceCores;
using contract::kResourceGpu;
using contract::kResourceMemory;
using contract::kResourceMemoryPercent;
using contract::kResourcePriority;

constexpr std::array<const char*, 5> kResources = {
    kResourceGpu, kResourceMemory, kResourceMemoryPercent, kResourceCores, kResourcePriority};

tl::unexpected<Error> Bad(const std::string& message) {
  return Fail(Code::kInvalidArgument, message);
}

// `node[key]` without making it, undefined where there is none or `node` is no map.
YAML::Node At(const YAML::Node& node, const std::string& key) {
  if (node.IsDefined() && node.IsMap()) {
    for (const auto& pair : node) {
      if (pair.first.Scalar() == key) return pair.second;
    }
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

std::string ScalarAt(const YAML::Node& node, const std::string& key) {
  const YAML::Node value = At(node, key);
  return value.IsDefined() && value.IsScalar() ? value.Scalar() : std::string();
}

struct Workload {
  YAML::Node metadata;  // of the pod, or of the pod template
  YAML::Node spec;
  std::string name;
};

// The pod inside a document; none when the document is of another kind.
std::optional<Workload> PodOf(const YAML::Node& document) {
  if (!document.IsMap()) return std::nullopt;
  const std::string kind = ScalarAt(document, "kind");
  const std::string name = ScalarAt(At(document, "metadata"), "name");
  YAML::Node holder(document);
  if (kind == "Deployment" || kind == "StatefulSet" || kind == "DaemonSet" ||
      kind == "ReplicaSet" || kind == "Job") {
    holder.reset(At(At(document, "spec"), "template"));
  } else if (kind == "CronJob") {
    holder.reset(At(At(At(At(document, "spec"), "jobTemplate"), "spec"), "template"));
  } else if (kind != "Pod") {
    return std::nullopt;
  }
  return Workload{At(holder, "metadata"), At(holder, "spec"), name};
}

// A whole number from `least` to `most`, in the forms that the API server reads and writes without
// changing it.
Result<std::uint64_t> ParseQuantity(const std::string& field, const YAML::Node& node,
                                    std::uint64_t least, std::uint64_t most,
                                    const std::string& legal) {
  const std::string text = node.IsScalar() ? node.Scalar() : "(not a value)";
  const tl::unexpected<Error> error = Bad(field + ": '" + Shown(text) + "' is not legal: " + legal);
  std::string_view digits = text;
  std::uint64_t factor = 1;
  if (digits.size() > 1 && digits.back() == 'k') {
    factor = 1000;
    digits.remove_suffix(1);
  }
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc{} || end != digits.data() + digits.size()) return error;
  if (digits.size() > 1 && digits[0] == '0') return error;  // YAML 1.1 reads it as octal
  if (value > most / factor || value * factor < least) return error;
  return value * factor;
}

// The value of one resource: the limit, else the request.
Result<YAML::Node> Resource(const YAML::Node& container, const std::string& name) {
  const YAML::Node limit = At(At(At(container, "resources"), "limits"), name);
  const YAML::Node request = At(At(At(container, "resources"), "requests"), name);
  if (!limit.IsDefined()) return request;
  if (request.IsDefined() && request.IsScalar() && limit.IsScalar() &&
      request.Scalar() != limit.Scalar()) {
    return Bad(name + ": limit '" + Shown(limit.Scalar()) + "' and request '" +
               Shown(request.Scalar()) + "' differ: they have to be equal");
  }
  return limit;
}

// Every nvidia.com name under limits and requests has to be one that is read here: a misspelt limit
// is no limit.
Status CheckNames(const YAML::Node& container) {
  for (const char* part : {"limits", "requests"}) {
    const YAML::Node map = At(At(container, "resources"), part);
    if (!map.IsDefined() || map.IsNull()) continue;
    if (!map.IsMap())
      return Bad(std::string("resources.") + part + ": is not a map of names and quantities");
    for (const auto& pair : map) {
      const YAML::Node& key = pair.first;
      const std::string& name = key.Scalar();
      if (!name.starts_with("nvidia.com/")) continue;
      if (name.starts_with(contract::kResourceMigPrefix)) {
        return Bad(name + ": MIG profiles are not available here: ask for " + kResourceMemory);
      }
      if (std::find(kResources.begin(), kResources.end(), name) == kResources.end()) {
        return Bad("'" + Shown(name) +
                   "' is no known resource: legal are nvidia.com/gpu, gpumem, gpumem-percentage, "
                   "gpucores and priority");
      }
    }
  }
  return {};
}

bool AsksForGpu(const YAML::Node& container) {
  for (const char* part : {"limits", "requests"}) {
    const YAML::Node map = At(At(container, "resources"), part);
    if (!map.IsDefined() || !map.IsMap()) continue;
    for (const auto& pair : map) {
      const YAML::Node& key = pair.first;
      if (key.Scalar().starts_with("nvidia.com/")) return true;
    }
  }
  return false;
}

Status ReadAnnotations(const YAML::Node& annotations, Request& request, bool priority_is_set) {
  if (!annotations.IsDefined() || annotations.IsNull()) return {};
  if (!annotations.IsMap()) return Bad("metadata.annotations: is not a map");
  for (const auto& pair : annotations) {
    const YAML::Node& key = pair.first;
    const YAML::Node& value = pair.second;
    const std::string& name = key.Scalar();
    const std::string text = value.IsScalar() ? value.Scalar() : "";
    if (name == kResourcePriority) {
      if (priority_is_set) continue;  // the limit is nearer to the container
      const Result<std::uint64_t> priority =
          ParseQuantity(name, value, 0, 1, "0 (high) or 1 (low)");
      if (!priority) return Fail(priority.error());
      request.priority = static_cast<Priority>(*priority);
    } else if (std::find(kResources.begin(), kResources.end(), name) != kResources.end()) {
      return Bad(name +
                 ": is written as an annotation, where it limits nothing: write it under "
                 "resources.limits");
    } else if (name == contract::kAnnotationUseUuid) {
      for (std::size_t start = 0; start <= text.size() && !text.empty();) {
        const std::size_t end = std::min(text.find(',', start), text.size());
        request.only_cards.push_back(text.substr(start, end - start));
        start = end + 1;
      }
    } else if (name == contract::kAnnotationGpuPolicy) {
      const Result<Policy> policy = ParsePolicy(name, text);
      if (!policy) return Fail(policy.error());
      request.policy = *policy;
    } else if (name == contract::kAnnotationMode && text.find("hami-core") == std::string::npos) {
      return Bad(name + ": '" + Shown(text) +
                 "' is not available here: legal is hami-core (the fence)");
    } else if (name == contract::kAnnotationNoUseUuid || name == contract::kAnnotationUseType ||
               name == contract::kAnnotationNoUseType ||
               (name == contract::kAnnotationNumaBind && text == "true")) {
      return Bad(name + ": is not kept on one machine: name the card with " +
                 contract::kAnnotationUseUuid);
    }
  }
  return {};
}

Result<Request> ReadRequest(const YAML::Node& container, const YAML::Node& annotations) {
  std::array<YAML::Node, kResources.size()> values;
  for (std::size_t i = 0; i < kResources.size(); ++i) {
    const Result<YAML::Node> value = Resource(container, kResources[i]);
    if (!value) return Fail(value.error());
    values[i].reset(*value);
  }
  const auto& [gpu, memory, percent, cores, priority] = values;

  Request request;
  if (gpu.IsDefined()) {
    const auto count = ParseQuantity(kResourceGpu, gpu, 1, 16, "whole cards, 1 to 16");
    if (!count) return Fail(count.error());
    request.card_count = static_cast<std::uint32_t>(*count);
  }
  if (memory.IsDefined()) {
    const auto mib = ParseQuantity(kResourceMemory, memory, 1, kMaxMemory / kMib,
                                   "whole MiB, 1 to 16777216, as 8000 or 8k (16 GiB are 16384)");
    if (!mib) return Fail(mib.error());
    request.memory_bytes = *mib * kMib;
  }
  if (percent.IsDefined()) {
    const auto part =
        ParseQuantity(kResourceMemoryPercent, percent, 1, 100, "whole percent, 1 to 100");
    if (!part) return Fail(part.error());
    if (!memory.IsDefined()) request.memory_percent = static_cast<std::uint32_t>(*part);
  }
  if (cores.IsDefined()) {
    const auto part =
        ParseQuantity(kResourceCores, cores, 0, 100, "whole percent of one card, 0 to 100");
    if (!part) return Fail(part.error());
    request.cores = static_cast<std::uint32_t>(*part);
  } else if (gpu.IsDefined() && !request.memory_bytes &&
             request.memory_percent.value_or(100) == 100) {
    request.cores = 100;  // as HAMi 2.10: a card that is asked for whole is nobody else's
  }
  if (priority.IsDefined()) {
    const auto level = ParseQuantity(kResourcePriority, priority, 0, 1, "0 (high) or 1 (low)");
    if (!level) return Fail(level.error());
    request.priority = static_cast<Priority>(*level);
  }
  if (Status read = ReadAnnotations(annotations, request, priority.IsDefined()); !read)
    return Fail(read.error());
  return request;
}

Result<YAML::Node> ChooseContainer(const YAML::Node& spec, std::string_view wanted) {
  std::vector<YAML::Node> all, asking;
  std::string names;
  for (const char* part : {"initContainers", "containers"}) {
    const YAML::Node list = At(spec, part);
    if (!list.IsDefined() || !list.IsSequence()) continue;
    for (const YAML::Node& container : list) {
      const std::string name = ScalarAt(container, "name");
      if (!wanted.empty() && name == wanted) return container;
      all.push_back(container);
      if (AsksForGpu(container)) asking.push_back(container);
      names += (names.empty() ? "" : ", ") + Shown(name);
    }
  }
  if (all.empty()) return Bad("the pod has no containers");
  if (!wanted.empty()) return Bad("no container '" + Shown(wanted) + "': the pod has " + names);
  if (asking.empty()) {
    return Bad(
        "no container asks for a GPU: none of nvidia.com/gpu, gpumem, gpumem-percentage and "
        "gpucores is under "
        "resources.limits");
  }
  if (asking.size() > 1) {
    return Bad("several containers ask for a GPU: name one as FILE:CONTAINER; the pod has " +
               names);
  }
  return asking[0];
}

void AppendWords(const YAML::Node& list, std::vector<std::string>& words) {
  if (!list.IsDefined() || !list.IsSequence()) return;
  for (const YAML::Node& word : list) {
    if (word.IsScalar()) words.push_back(word.Scalar());
  }
}

}  // namespace

Result<PodContainer> ReadPodContainer(std::string_view text, std::string_view container) {
  if (text.size() > kMaxPodBytes) return Bad("a manifest of more than 1 MiB");
  const Result<std::vector<YAML::Node>> documents = base::LoadYaml(text);
  if (!documents) return Fail(documents.error());
  std::optional<Workload> workload;
  for (const YAML::Node& document : *documents) {
    std::optional<Workload> found = PodOf(document);
    if (!found) continue;
    if (workload) return Bad("more than one workload in the file: keep one");
    workload = std::move(found);
  }
  if (!workload) {
    return Bad(
        "no workload in the file: legal kinds are Pod, Deployment, StatefulSet, DaemonSet, "
        "ReplicaSet, Job and "
        "CronJob");
  }
  const Result<YAML::Node> chosen = ChooseContainer(workload->spec, container);
  if (!chosen) return Fail(chosen.error());
  PodContainer result;
  result.pod = workload->name;
  result.container = ScalarAt(*chosen, "name");
  const std::string where = "container " + Shown(result.container);
  if (Status names = CheckNames(*chosen); !names) return FailIn(where, names.error());
  if (!AsksForGpu(*chosen)) return Bad(where + ": asks for no GPU");
  Result<Request> request = ReadRequest(*chosen, At(workload->metadata, "annotations"));
  if (!request) return FailIn(where, request.error());
  result.request = std::move(*request);
  AppendWords(At(*chosen, "command"), result.command);
  AppendWords(At(*chosen, "args"), result.command);
  return result;
}

}  // namespace tessera::model
