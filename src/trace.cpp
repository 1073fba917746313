#include "src/trace.hpp"

#ifdef GDNBENCH_WITH_NVTX

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <string>

namespace gdn {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA(trace_domain);  // null: nobody watches
  return handle;
}

// Each name is handed over once.
nvtxStringHandle_t registered(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, nvtxStringHandle_t, std::less<>> names;
  const std::lock_guard lock(mutex);
  auto known = names.find(name);
  if (known == names.end()) {
    const std::string text(name);
    known = names.emplace(text, nvtxDomainRegisterStringA(domain(), text.c_str())).first;
  }
  return known->second;
}

void push(std::string_view name, const double* payload) {
  if (domain() == nullptr) return;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = registered(name);
  if (payload != nullptr) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    attributes.payload.dValue = *payload;
  }
  nvtxDomainRangePushEx(domain(), &attributes);
}

}  // namespace

Range::Range(std::string_view name) { push(name, nullptr); }
Range::Range(std::string_view name, double payload) { push(name, &payload); }
Range::~Range() {
  if (domain() != nullptr) nvtxDomainRangePop(domain());
}

}  // namespace gdn

#endif
