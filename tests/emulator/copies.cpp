// cp.async and the copy engine. What a copy will overwrite is NaN from the moment on that it is
// issued, as it may come at any time; it comes when the machine likes, or when it is waited for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/emulator/machine.hpp"

namespace gdn::emulator {

void bring_bytes(std::uint64_t& word, std::uint32_t bytes);  // barriers.cpp

namespace {

void perform(const PlainCopy& copy) {
  if (copy.real) {
    std::memcpy(copy.to, copy.from, copy.bytes);
  } else {
    std::memset(copy.to, 0, copy.bytes);
  }
}

std::uint32_t box_bytes(const Tensor& tensor) {
  return tensor.box[0] * tensor.box[1] * tensor.box[2] * 2;
}

// Visits the elements of a box: where each lies in shared memory, from `address` on in its
// swizzle, and in the tensor, or null where that ends.
template <class Visit>
void for_each_element(const Tensor& tensor, const std::int32_t (&at)[3], std::uint32_t address,
                      Visit visit) {
  const std::uint32_t units = tensor.swizzle_bytes / 16 - 1;
  for (std::uint32_t k = 0; k < tensor.box[2]; ++k)
    for (std::uint32_t j = 0; j < tensor.box[1]; ++j)
      for (std::uint32_t i = 0; i < tensor.box[0]; ++i) {
        const std::int64_t x[] = {at[0] + std::int64_t{i}, at[1] + std::int64_t{j},
                                  at[2] + std::int64_t{k}};
        bool inside = true;
        for (int d = 0; d < 3; ++d)
          inside &= x[d] >= 0 && x[d] < static_cast<std::int64_t>(tensor.extents[d]);
        const std::uint32_t plain = address + 2 * (i + tensor.box[0] * (j + tensor.box[1] * k));
        const std::uint32_t swizzled = plain ^ (plain >> 7 & units) << 4;
        visit(swizzled - address,
              inside ? tensor.data + 2 * x[0] +
                           x[1] * static_cast<std::int64_t>(tensor.strides_bytes[0]) +
                           x[2] * static_cast<std::int64_t>(tensor.strides_bytes[1])
                     : nullptr);
      }
}

std::uint32_t box_address(const Tensor& tensor, const void* shared) {
  const std::uint32_t address = shared_address(shared);
  if (address % 1024 != 0) fail("has a box in shared memory that is not aligned");
  (void)at_shared(address, 16);
  (void)at_shared(address + box_bytes(tensor) - 16, 16);
  return address;
}

unsigned char* start_load(Cta& cta, std::ptrdiff_t offset, std::uint32_t bytes) {
  unsigned char* to = cta.shared + offset;
  std::memset(to, 0xFF, bytes);
  std::fill_n(cta.writers.begin() + offset / 16, bytes / 16, 0);
  return to;
}

}  // namespace

void copy(std::uint32_t to, const void* from, int bytes, bool real) {
  Machine& machine = Machine::now();
  const PlainCopy copy = {at_shared(to, bytes), from, static_cast<std::size_t>(bytes), real};
  note_written(copy.to);
  if (machine.eager()) return perform(copy);
  std::memset(copy.to, 0xFF, copy.bytes);
  machine.lane()->copies.push_back(copy);
}

void commit_copies() {
  Lane& lane = *Machine::now().lane();
  lane.copy_groups.push_back(lane.copies.size());
}

void wait_copies(int pending) {
  Machine::now().maybe_yield(32);
  Lane& lane = *Machine::now().lane();
  const auto over = static_cast<std::ptrdiff_t>(lane.copy_groups.size()) - pending;
  if (over <= 0) return;
  const std::size_t end = lane.copy_groups[over - 1];
  std::for_each_n(lane.copies.begin(), end, perform);
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + static_cast<std::ptrdiff_t>(end));
  lane.copy_groups.erase(lane.copy_groups.begin(), lane.copy_groups.begin() + over);
  for (std::size_t& group : lane.copy_groups) group -= end;
}

void load_box(void* to, const Tensor& tensor, const std::int32_t (&at)[3], std::uint64_t& full,
              std::uint32_t ctas) {
  Machine& machine = Machine::now();
  Cta& own = *machine.lane()->warp->cta;
  const std::uint32_t address = box_address(tensor, to), bytes = box_bytes(tensor);
  const std::ptrdiff_t offset = static_cast<unsigned char*>(to) - own.shared;
  const std::ptrdiff_t barrier = reinterpret_cast<unsigned char*>(&full) - own.shared;
  for (Cta& cta : machine.ctas()) {
    if (ctas == 0 ? &cta != &own : !(ctas >> cta.rank & 1)) continue;
    unsigned char* const start = start_load(cta, offset, bytes);
    auto& word = *reinterpret_cast<std::uint64_t*>(cta.shared + barrier);
    const auto perform = [=, &word, at = std::to_array(at)] {
      const std::int32_t from[] = {at[0], at[1], at[2]};
      for_each_element(tensor, from, address, [&](std::uint32_t place, const unsigned char* x) {
        if (x != nullptr) {
          std::memcpy(start + place, x, 2);
        } else {
          std::memset(start + place, 0, 2);
        }
      });
      bring_bytes(word, bytes);
    };
    machine.transfers().push_back({machine.lane(), -1, perform});
  }
  machine.maybe_yield();
}

void load_bytes(void* to, const void* from, std::uint32_t bytes, std::uint64_t& full) {
  Machine& machine = Machine::now();
  (void)at_shared(shared_address(to), 16);
  unsigned char* const start = start_load(*machine.lane()->warp->cta,
                                          static_cast<unsigned char*>(to) - shared_memory(), bytes);
  const auto perform = [=, &full] {
    std::memcpy(start, from, bytes);
    bring_bytes(full, bytes);
  };
  machine.transfers().push_back({machine.lane(), -1, perform});
  machine.maybe_yield();
}

void store_box(const Tensor& tensor, const std::int32_t (&at)[3], const void* from) {
  Machine& machine = Machine::now();
  const std::uint32_t address = box_address(tensor, from);
  const auto* start = static_cast<const unsigned char*>(from);
  const Cta& cta = *machine.lane()->warp->cta;
  const auto perform = [=, &cta, at = std::to_array(at)] {
    for (std::uint32_t i = 0; i < box_bytes(tensor); i += 16)
      expect_published(cta, start + i - cta.shared);
    const std::int32_t to[] = {at[0], at[1], at[2]};
    for_each_element(tensor, to, address, [&](std::uint32_t place, unsigned char* x) {
      if (x != nullptr) std::memcpy(x, start + place, 2);
    });
  };
  machine.transfers().push_back({machine.lane(), machine.lane()->store_groups, perform});
  machine.maybe_yield();
}

void store_bytes(void* to, const void* from, std::uint32_t bytes) {
  Machine& machine = Machine::now();
  (void)at_shared(shared_address(from), 16);
  const auto* start = static_cast<const unsigned char*>(from);
  const Cta& cta = *machine.lane()->warp->cta;
  const auto perform = [=, &cta] {
    for (std::uint32_t i = 0; i < bytes; i += 16) expect_published(cta, start + i - cta.shared);
    std::memcpy(to, start, bytes);
  };
  machine.transfers().push_back({machine.lane(), machine.lane()->store_groups, perform});
  machine.maybe_yield();
}

void commit_stores() { ++Machine::now().lane()->store_groups; }

void wait_stores_read(int pending) {
  Machine& machine = Machine::now();
  machine.maybe_yield();
  Lane& lane = *machine.lane();
  std::erase_if(machine.transfers(), [&](const Transfer& transfer) {
    if (transfer.by != &lane || transfer.store_group < 0 ||
        transfer.store_group >= lane.store_groups - pending)
      return false;
    transfer.perform();
    return true;
  });
}

}  // namespace gdn::emulator
