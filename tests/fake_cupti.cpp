// A library with the part of CUPTI's interface that the activity pass uses, for machines without a
// GPU.
#include "tests/fake_cupti.hpp"

#include <cupti.h>

#include <cstring>

namespace {

CUpti_BuffersCallbackRequestFunc request;
CUpti_BuffersCallbackCompleteFunc complete;

// A buffer a record, so that their order is not that of their making.
template <class Record>
void hand_over(const Record& record) {
  std::uint8_t* buffer = nullptr;
  std::size_t bytes = 0, most_records = 0;
  request(&buffer, &bytes, &most_records);
  if (bytes < sizeof record) return;
  std::memcpy(buffer, &record, sizeof record);
  complete(nullptr, 0, buffer, bytes, sizeof record);
}

}  // namespace

extern "C" {

gdn::test::FakeCupti fake_cupti;

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  if (fake_cupti.subscribe_result != 0)
    return static_cast<CUptiResult>(fake_cupti.subscribe_result);
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&fake_cupti);
  fake_cupti.subscribed = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  fake_cupti.subscribed = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  request = requested;
  complete = completed;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind) {
  if (fake_cupti.enable_result != 0) return static_cast<CUptiResult>(fake_cupti.enable_result);
  ++fake_cupti.enabled;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
  if (fake_cupti.enabled > 0) --fake_cupti.enabled;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  for (auto each = fake_cupti.pending.rbegin(); each != fake_cupti.pending.rend(); ++each) {
    if (each->kernel.empty()) {
      CUpti_ActivityMemset4 record{};
      record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
      record.start = each->start_ns;
      record.end = each->end_ns;
      record.bytes = 4096;
      hand_over(record);
    } else {
      CUpti_ActivityKernel10 record{};
      record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
      record.start = each->start_ns;
      record.end = each->end_ns;
      record.name = each->kernel.c_str();
      record.gridX = 132;
      record.gridY = record.gridZ = record.blockY = record.blockZ = 1;
      record.blockX = 384;
      record.registersPerThread = 168;
      record.staticSharedMemory = 16;
      record.dynamicSharedMemory = 232448;
      record.streamId = 7;
      record.correlationId = 42;
      hand_over(record);
    }
  }
  fake_cupti.pending.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t, CUpti_Activity** record) {
  if (*record != nullptr) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(buffer);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = fake_cupti.dropped;
  fake_cupti.dropped = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_FAKE";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiFinalize() {
  ++fake_cupti.finalized;
  return CUPTI_SUCCESS;
}

}  // extern "C"
