package gguf

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/tensor"
)

// ValueType is GGUF's number for the type of a metadata value.
type ValueType uint32

// Types of metadata values, as the GGUF specification numbers them.
const (
	TypeUint8 ValueType = iota
	TypeInt8
	TypeUint16
	TypeInt16
	TypeUint32
	TypeInt32
	TypeFloat32
	TypeBool
	TypeString
	TypeArray
	TypeUint64
	TypeInt64
	TypeFloat64
	numValueTypes
)

// minBytes is the least that a value takes in a file.
var minBytes = [numValueTypes]int{
	TypeUint8: 1, TypeInt8: 1, TypeUint16: 2, TypeInt16: 2, TypeUint32: 4, TypeInt32: 4, TypeFloat32: 4,
	TypeBool: 1, TypeString: 8, TypeArray: 12, TypeUint64: 8, TypeInt64: 8, TypeFloat64: 8,
}

// KV is one metadata entry with its exact type, so that a copy of a file
// keeps it. Value is one of uint8, int8, uint16, int16, uint32, int32, uint64,
// int64, float32, float64, bool, string, a slice of one of these, or []any of
// such slices for an array of arrays.
type KV struct {
	Key   string
	Value any
}

// typeOf gives the type of a KV's value, and of its elements where it is an array.
func typeOf(v any) (typ, elem ValueType, ok bool) {
	switch v.(type) {
	case uint8:
		return TypeUint8, 0, true
	case int8:
		return TypeInt8, 0, true
	case uint16:
		return TypeUint16, 0, true
	case int16:
		return TypeInt16, 0, true
	case uint32:
		return TypeUint32, 0, true
	case int32:
		return TypeInt32, 0, true
	case float32:
		return TypeFloat32, 0, true
	case bool:
		return TypeBool, 0, true
	case string:
		return TypeString, 0, true
	case uint64:
		return TypeUint64, 0, true
	case int64:
		return TypeInt64, 0, true
	case float64:
		return TypeFloat64, 0, true
	case []uint8:
		return TypeArray, TypeUint8, true
	case []int8:
		return TypeArray, TypeInt8, true
	case []uint16:
		return TypeArray, TypeUint16, true
	case []int16:
		return TypeArray, TypeInt16, true
	case []uint32:
		return TypeArray, TypeUint32, true
	case []int32:
		return TypeArray, TypeInt32, true
	case []float32:
		return TypeArray, TypeFloat32, true
	case []bool:
		return TypeArray, TypeBool, true
	case []string:
		return TypeArray, TypeString, true
	case []uint64:
		return TypeArray, TypeUint64, true
	case []int64:
		return TypeArray, TypeInt64, true
	case []float64:
		return TypeArray, TypeFloat64, true
	case []any:
		return TypeArray, TypeArray, true
	}
	return 0, 0, false
}

// widen turns an exact value into what weights.Source.Meta promises. A uint64
// beyond int64 becomes a float64; arrays of arrays have no such form.
func widen(v any) (any, bool) {
	switch v := v.(type) {
	case uint8:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint64:
		if v > math.MaxInt64 {
			return float64(v), true
		}
		return int64(v), true
	case float32:
		return float64(v), true
	case []uint8:
		return ints(v), true
	case []int8:
		return ints(v), true
	case []uint16:
		return ints(v), true
	case []int16:
		return ints(v), true
	case []uint32:
		return ints(v), true
	case []int32:
		return ints(v), true
	case []uint64:
		for _, e := range v {
			if e > math.MaxInt64 {
				return floats(v), true
			}
		}
		return ints(v), true
	case []float32:
		return floats(v), true
	case int64, float64, bool, string, []int64, []float64, []bool, []string:
		return v, true
	}
	return nil, false
}

func ints[E uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64](v []E) []int64 {
	out := make([]int64, len(v))
	for i, e := range v {
		out[i] = int64(e)
	}
	return out
}

func floats[E float32 | uint64](v []E) []float64 {
	out := make([]float64, len(v))
	for i, e := range v {
		out[i] = float64(e)
	}
	return out
}

// ggmlTypes maps GGML's numbers of tensor types; the numbers missing here are
// in otherTypes or unknown.
var ggmlTypes = map[uint32]tensor.Type{
	0: tensor.F32, 1: tensor.F16, 2: tensor.Q4_0, 3: tensor.Q4_1, 6: tensor.Q5_0, 7: tensor.Q5_1, 8: tensor.Q8_0,
	10: tensor.Q2_K, 11: tensor.Q3_K, 12: tensor.Q4_K, 13: tensor.Q5_K, 14: tensor.Q6_K,
	20: tensor.IQ4_NL, 23: tensor.IQ4_XS,
	24: tensor.I8, 25: tensor.I16, 26: tensor.I32, 27: tensor.I64, 28: tensor.F64,
	30: tensor.BF16, 34: tensor.TQ1_0, 35: tensor.TQ2_0,
	16: tensor.IQ2_XXS, 17: tensor.IQ2_XS, 18: tensor.IQ3_XXS, 19: tensor.IQ1_S, 21: tensor.IQ3_S, 22: tensor.IQ2_S,
	29: tensor.IQ1_M, 39: tensor.MXFP4, 40: tensor.NVFP4,
}

// otherTypes are formats that files hold and greta does not read, for messages.
var otherTypes = map[uint32]string{
	4: "q4_2, withdrawn", 5: "q4_3, withdrawn", 9: "q8_1", 15: "q8_K",
	31: "q4_0_4_4, withdrawn", 32: "q4_0_4_8, withdrawn", 33: "q4_0_8_8, withdrawn",
	36: "iq4_nl_4_4, withdrawn", 37: "iq4_nl_4_8, withdrawn", 38: "iq4_nl_8_8, withdrawn", 41: "q1_0",
}

var ggmlIDs = func() map[tensor.Type]uint32 {
	ids := map[tensor.Type]uint32{}
	for id, t := range ggmlTypes {
		ids[t] = id
	}
	return ids
}()

// TypeOf gives the tensor type of a GGML type number.
func TypeOf(id uint32) (tensor.Type, error) {
	if t, ok := ggmlTypes[id]; ok {
		return t, nil
	}
	if name, ok := otherTypes[id]; ok {
		return tensor.Invalid, fmt.Errorf("type %d (%s) is not supported", id, name)
	}
	return tensor.Invalid, fmt.Errorf("type %d is unknown", id)
}

// TypeID gives the GGML number of a tensor type, false where GGUF has none.
func TypeID(t tensor.Type) (uint32, bool) {
	id, ok := ggmlIDs[t]
	return id, ok
}
