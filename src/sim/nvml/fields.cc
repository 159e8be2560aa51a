// Figures by number (NVML_FI_*). What is not in the table answers NOT_SUPPORTED for itself only.
#include "impl.h"
#include "sim/nvml/library.h"
#include "sim/nvml/sensors.h"

namespace tessera::sim::nvml {
namespace {

enum class Answer { kYes, kNo };

Answer Value(nvmlDevice_t device, unsigned int field, unsigned int scope,
             unsigned long long* value) {
  const CardSpec& spec = Spec(device);
  const CardState& state = State(device);
  const Answer with_ecc = spec.ecc_supported != 0 ? Answer::kYes : Answer::kNo;
  const Answer with_nvlink = spec.nvlink_count > scope ? Answer::kYes : Answer::kNo;
  *value = 0;
  switch (field) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
      *value = 1;
      return with_ecc;
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_SBE_VOL_DEV:
    case NVML_FI_DEV_ECC_SBE_AGG_DEV:
      *value = state.ecc_corrected.load();
      return with_ecc;
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_DBE_VOL_DEV:
    case NVML_FI_DEV_ECC_DBE_AGG_DEV:
      *value = state.ecc_uncorrected.load();
      return with_ecc;
    case NVML_FI_DEV_RETIRED_SBE:
    case NVML_FI_DEV_RETIRED_DBE:
    case NVML_FI_DEV_RETIRED_PENDING:
    case NVML_FI_DEV_RETIRED_PENDING_SBE:
    case NVML_FI_DEV_RETIRED_PENDING_DBE:
    case NVML_FI_DEV_REMAPPED_COR:
    case NVML_FI_DEV_REMAPPED_UNC:
    case NVML_FI_DEV_REMAPPED_PENDING:
    case NVML_FI_DEV_REMAPPED_FAILURE:
      return with_ecc;
    case NVML_FI_DEV_MEMORY_TEMP:
      *value = ReadSensors(device).temperature_c;
      return Answer::kYes;
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
    case NVML_FI_DEV_ENERGY:
      *value = EnergyMillijoules(device);
      return Answer::kYes;
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
      *value = ReadSensors(device).power_mw;
      return Answer::kYes;
    case NVML_FI_DEV_POWER_MIN_LIMIT:
      *value = spec.power_limit_mw / 3;
      return Answer::kYes;
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
      *value = spec.power_limit_mw;
      return Answer::kYes;
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
    case NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER:
      return Answer::kYes;
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
      *value = spec.nvlink_count;
      return Answer::kYes;
    case NVML_FI_DEV_NVLINK_GET_STATE:
      *value = 1;
      return with_nvlink;
    case NVML_FI_DEV_NVLINK_GET_VERSION: {
      unsigned int version = 0;
      if (DeviceGetNvLinkVersion(device, scope, &version) != NVML_SUCCESS) return Answer::kNo;
      *value = version;
      return Answer::kYes;
    }
    case NVML_FI_DEV_NVLINK_GET_SPEED:
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
      *value = 26'562;
      return with_nvlink;  // NVLink 3 and 4: 25 GB/s and overhead
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT: {
      nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
      DeviceGetNvLinkRemoteDeviceType(device, 0, &type);
      *value = type == NVML_NVLINK_DEVICE_TYPE_SWITCH ? spec.nvlink_count : 0;
      return Answer::kYes;
    }
    case NVML_FI_DEV_C2C_LINK_COUNT:
      return Answer::kYes;
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
      *value = state.recovery_action.load();
      return Answer::kYes;
    default:
      return Answer::kNo;
  }
}

}  // namespace

nvmlReturn_t DeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  if (count < 0 || (values == nullptr && count > 0)) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < count; ++i) {
    nvmlFieldValue_t& field = values[i];
    unsigned long long value = 0;
    field.timestamp = static_cast<long long>(RealTimeUs(NowNs()));
    field.latencyUsec = 0;
    field.valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field.nvmlReturn = Value(device, field.fieldId, field.scopeId, &value) == Answer::kYes
                           ? NVML_SUCCESS
                           : NVML_ERROR_NOT_SUPPORTED;
    field.value.ullVal = value;
  }
  return NVML_SUCCESS;
}

}  // namespace tessera::sim::nvml
