// The linker: takes PTX, cubins, fat binaries and files of them; gives an image that loading takes
// back.
//
// The image is PTX text that declares the kernels and variables of all inputs: nothing is executed,
// so names, parameter layouts, sizes and first contents are all that loading needs.
#include <cstring>
#include <memory>

#include "sim/cuda/api.h"
#include "sim/cuda/code_image.h"
#include "sim/cuda/context.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

CUresult ReadCodeFile(const char* path, std::vector<std::uint8_t>* bytes);

namespace {

struct Link {
  static constexpr HandleKind kKind = HandleKind::kLink;
  using Handle = CUlinkState;
  CUlinkState handle{};
  ComputeCapability card{};
  std::vector<CodeImage> images;
  std::vector<std::uint8_t> linked;
};

void Put(std::vector<std::uint8_t>& out, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  out.insert(out.end(), bytes, bytes + size);
}

// PTX text that declares what the images hold: the interchange form that needs no instructions.
std::string Declare(const std::vector<CodeImage>& images, std::uint32_t arch) {
  std::string text = ".version 8.0\n.target sm_" + std::to_string(arch) + "\n.address_size 64\n";
  for (const CodeImage& image : images) {
    for (const auto& [name, variable] : image.variables) {
      text += variable.constant ? ".const " : ".global ";
      if (variable.managed) text += ".attribute(.managed) ";
      text += ".b8 " + name + "[" + std::to_string(variable.size) + "]";
      if (!variable.content.empty()) {
        text += " = {";
        for (std::size_t i = 0; i < variable.content.size(); ++i) {
          text += (i == 0 ? "" : ",") + std::to_string(variable.content[i]);
        }
        text += "}";
      }
      text += ";\n";
    }
    for (const auto& [name, kernel] : image.kernels) {
      text += ".entry " + name + "(";
      std::uint32_t at = 0;
      for (const ParamInfo& param : kernel.params) {
        std::uint32_t align = 16;
        while (align > 1 && param.offset % align != 0) align /= 2;
        text += std::string(at == 0 && &param == kernel.params.data() ? "" : ",") +
                ".param .align " + std::to_string(align) + " .b8 " + name + "_param_" +
                std::to_string(&param - kernel.params.data()) + "[" + std::to_string(param.size) +
                "]";
        at = param.offset + param.size;
      }
      text += ")\n.maxntid " + std::to_string(kernel.max_threads) + "\n{\n";
      if (kernel.shared_bytes != 0)
        text += ".shared .b8 s[" + std::to_string(kernel.shared_bytes) + "];\n";
      if (kernel.local_bytes != 0)
        text += ".local .b8 l[" + std::to_string(kernel.local_bytes) + "];\n";
      text += "ret;\n}\n";
    }
  }
  return text;
}

CUresult AddBytes(Link& link, CUjitInputType type, const void* data, std::size_t size) {
  if (data == nullptr || size == 0 || type >= CU_JIT_NUM_INPUT_TYPES)
    return CUDA_ERROR_INVALID_VALUE;
  const std::span<const std::uint8_t> bytes(static_cast<const std::uint8_t*>(data), size);
  if (type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_NVVM)
    return CUDA_SUCCESS;  // device libraries hold no kernels
  if (type == CU_JIT_INPUT_PTX) {
    std::string_view text(static_cast<const char*>(data), size);
    ImageResult parsed = ParsePtx(text.substr(0, text.find('\0')));
    if (!parsed.ok) return CUDA_ERROR_INVALID_PTX;
    if (parsed.image.arch > link.card.major * 10 + link.card.minor)
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    link.images.push_back(std::move(parsed.image));
    return CUDA_SUCCESS;
  }
  ImageResult chosen = ChooseImage(bytes, link.card);
  if (!chosen.ok)
    return chosen.error == ImageError::kNoBinaryForGpu ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                       : CUDA_ERROR_INVALID_IMAGE;
  link.images.push_back(std::move(chosen.image));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuLinkCreate_v2)(unsigned, CUjit_option*, void**, CUlinkState* handle) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* link = new Link;
  link->card = {context->device->spec->cc_major, context->device->spec->cc_minor};
  link->handle = NewHandle(link);
  *handle = link->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuLinkAddData_v2)(CUlinkState handle, CUjitInputType type, void* data, std::size_t size,
                          const char*, unsigned, CUjit_option*, void**) {
  Link* link = Find<Link>(handle);
  return link == nullptr ? CUDA_ERROR_INVALID_HANDLE : AddBytes(*link, type, data, size);
}

SIM_API(cuLinkAddFile_v2)(CUlinkState handle, CUjitInputType type, const char* path, unsigned,
                          CUjit_option*, void**) {
  Link* link = Find<Link>(handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::uint8_t> bytes;
  SIM_TRY(ReadCodeFile(path, &bytes));
  return AddBytes(*link, type, bytes.data(), bytes.size() - 1);
}

SIM_API(cuLinkComplete)(CUlinkState handle, void** image, std::size_t* size) {
  Link* link = Find<Link>(handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::string text = Declare(link->images, link->card.major * 10 + link->card.minor);
  link->linked.clear();
  Put(link->linked, text.c_str(), text.size() + 1);
  *image = link->linked.data();
  if (size != nullptr) *size = link->linked.size();
  return CUDA_SUCCESS;
}

SIM_API(cuLinkDestroy)(CUlinkState handle) {
  Link* link = RemoveHandle<Link>(handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  delete link;
  return CUDA_SUCCESS;
}

SIM_API(cuLinkCreate)(unsigned count, CUjit_option* options, void** values, CUlinkState* handle) {
  return impl_cuLinkCreate_v2(count, options, values, handle);
}
SIM_API(cuLinkAddData)(CUlinkState handle, CUjitInputType type, void* data, std::size_t size,
                       const char* name, unsigned count, CUjit_option* options, void** values) {
  return impl_cuLinkAddData_v2(handle, type, data, size, name, count, options, values);
}
SIM_API(cuLinkAddFile)(CUlinkState handle, CUjitInputType type, const char* path, unsigned count,
                       CUjit_option* options, void** values) {
  return impl_cuLinkAddFile_v2(handle, type, path, count, options, values);
}
