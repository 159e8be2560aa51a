#include "sim/cuda/array.h"
