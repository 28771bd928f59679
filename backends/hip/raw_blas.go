package hip

import (
	"fmt"

	"github.com/greta-project/greta/internal/errlist"
)

// The vendor's own matrix product: cuBLAS, with cuBLASLt for 8-bit floats, or
// hipBLAS. Microbenchmarks take it as the roof for this backend's products; nothing
// else uses it, and nothing needs it.

// NoLibrary says that the vendor's library of products is not there, or lacks a type.
type NoLibrary struct{ Reason string }

func (e *NoLibrary) Error() string { return "no library of products: " + e.Reason }

// RawBLAS is the vendor's library.
type RawBLAS struct {
	r      *Raw
	lib    *blasLibrary
	handle uintptr
	light  uintptr // of cuBLASLt, 0 until it is needed
	work   *RawMemory
}

// Product is a matrix product y = x·wᵀ of row-major matrices: x has m rows and w n
// rows, both of k elements; y has m rows of n. With Plain it is y = x·w, where w has
// k rows of n. Types are "f32", "f16", "bf16", and "f8e4m3" for x and w, where y is
// bf16 and Plain is not possible. Sums are f32.
type Product struct {
	Type    string
	M, N, K int
	Plain   bool
}

// ResultType is the type of y's elements.
func (p Product) ResultType() string {
	if p.Type == "f8e4m3" {
		return "bf16"
	}
	return p.Type
}

// blasWork is the memory that the library may use beside the matrices.
const blasWork = 64 << 20

// The enumerations of both libraries. hipBLAS takes HIP's numbers of types, which
// are CUDA's, in the interface that ROCm 6 calls v2 and ROCm 7 has alone.
var blasTypes = map[string]uintptr{"f32": 0, "f16": 2, "bf16": 14, "f8e4m3": 28}

// BLAS opens the vendor's library. Its error is a *NoLibrary where there is none.
func (r *Raw) BLAS() (*RawBLAS, error) {
	lib, err := loadBLAS(r.dev.d.vendor(), r.dev.d.files())
	if err != nil {
		return nil, &NoLibrary{err.Error()}
	}
	b := &RawBLAS{r: r, lib: lib}
	out := newOuts()
	defer out.keep()
	if err := b.call(blasCreate, out.at(0)); err != nil {
		return nil, err
	}
	b.handle = uintptr(out.v[0])
	if err := b.call(blasSetStream, b.handle, r.dev.stream); err != nil {
		return nil, errlist.Join(err, b.Close())
	}
	return b, nil
}

// File is the library that was loaded.
func (b *RawBLAS) File() string { return b.lib.path }

// Close gives the library's handles back.
func (b *RawBLAS) Close() error {
	var errs []error
	if b.handle != 0 {
		errs = append(errs, b.call(blasDestroy, b.handle))
	}
	if b.light != 0 {
		errs = append(errs, b.call(ltDestroy, b.light))
	}
	if b.work != nil {
		errs = append(errs, b.work.Free())
	}
	b.handle, b.light, b.work = 0, 0, nil
	return errlist.Join(errs...)
}

func (b *RawBLAS) call(f blasFn, args ...uintptr) error {
	if b.lib.addr[f] == 0 {
		return &NoLibrary{b.lib.path + " has no " + b.lib.name(f)}
	}
	if code := int32(b.lib.invoke(f, args)); code != 0 {
		return fmt.Errorf("%s failed with %d", b.lib.name(f), code)
	}
	return nil
}

// RawProduct is a product with its matrices, ready to be started many times.
type RawProduct struct {
	b     *RawBLAS
	f     blasFn
	args  []uintptr
	free  func()
	close []func() error
}

// Bind makes a product. Both libraries have their matrices by columns, so that they are
// given yᵀ = w·xᵀ: w transposed (it lies by rows of k), x as it is, y by columns of n;
// with Plain w as it is too, by columns of n.
func (b *RawBLAS) Bind(p Product, y, x, w *RawMemory) (*RawProduct, error) {
	typ, ok := blasTypes[p.Type]
	if !ok {
		return nil, &NoLibrary{"it is not asked for products of " + p.Type}
	}
	if p.M <= 0 || p.N <= 0 || p.K <= 0 {
		return nil, fmt.Errorf("a product of %d×%d×%d", p.M, p.N, p.K)
	}
	if p.Type == "f8e4m3" {
		if p.Plain {
			return nil, &NoLibrary{"8-bit floats are multiplied as y = x·wᵀ alone"}
		}
		return b.bindLight(p, y, x, w)
	}
	one, zero, free := scalars()
	transposed, plain, compute := uintptr(1), uintptr(0), uintptr(68) // CUBLAS_OP_T, _N, CUBLAS_COMPUTE_32F
	if b.lib.who == amd {
		transposed, plain, compute = 112, 111, 2 // HIPBLAS_OP_T, _N, HIPBLAS_COMPUTE_32F
	}
	best := ^uintptr(0) // CUBLAS_GEMM_DEFAULT
	if b.lib.who == amd {
		best = 160 // HIPBLAS_GEMM_DEFAULT
	}
	m, n, k := uintptr(p.M), uintptr(p.N), uintptr(p.K)
	ofW, ld := transposed, k
	if p.Plain {
		ofW, ld = plain, n
	}
	return &RawProduct{b: b, f: blasGemm, free: free, args: []uintptr{b.handle, ofW, plain, n, m, k, one,
		w.at, typ, ld, x.at, typ, k, zero, y.at, typ, n, compute, best}}, nil
}

// Start puts the product on the device's stream.
func (p *RawProduct) Start() error {
	if code := int32(p.b.lib.invoke(p.f, p.args)); code != 0 {
		return fmt.Errorf("%s failed with %d", p.b.lib.name(p.f), code)
	}
	return nil
}

// Close ends the product.
func (p *RawProduct) Close() error {
	var errs []error
	for i := len(p.close) - 1; i >= 0; i-- {
		errs = append(errs, p.close[i]())
	}
	p.free()
	return errlist.Join(errs...)
}

// scalars gives the addresses of 1 and 0 in f32.
func scalars() (one, zero uintptr, free func()) {
	a := &args{}
	a.values = []uint64{uint64(floatOne), 0}
	a.pin.Pin(&a.values[0])
	at := addressOf(&a.values[0])
	return at, at + 8, a.pin.Unpin
}

const floatOne = 0x3f800000

// Attributes of cuBLASLt that are set here.
const (
	ltTransA, ltTransB = 3, 4 // of a product's description
	ltWorkspace        = 1    // of a preference
	ltResultBytes      = 96   // of an answer: 64 bytes of algorithm, workspace, status, waves, reserve
	ltStatusAt         = 72
)

// bindLight makes a product of 8-bit floats through cuBLASLt, by the algorithm that
// it says is best.
func (b *RawBLAS) bindLight(p Product, y, x, w *RawMemory) (_ *RawProduct, err error) {
	if b.lib.who == amd {
		return nil, &NoLibrary{"8-bit floats are not asked of hipBLAS"}
	}
	if b.light == 0 {
		out := newOuts()
		defer out.keep()
		if err := b.call(ltCreate, out.at(0)); err != nil {
			return nil, err
		}
		b.light = uintptr(out.v[0])
		if b.work, err = b.r.Alloc(blasWork, OnDevice); err != nil {
			return nil, err
		}
	}
	one, zero, free := scalars()
	q := &RawProduct{b: b, f: ltMatmul, free: free}
	defer func() {
		if err != nil {
			err = errlist.Join(err, q.Close())
		}
	}()
	// make creates an object and sees to its end.
	create := func(f, end blasFn, args ...uintptr) (uintptr, error) {
		out := newOuts()
		defer out.keep()
		if err := b.call(f, append([]uintptr{out.at(0)}, args...)...); err != nil {
			return 0, err
		}
		h := uintptr(out.v[0])
		q.close = append(q.close, func() error { return b.call(end, h) })
		return h, nil
	}
	set := func(f blasFn, object, attribute uintptr, value uint64, bytes uintptr) error {
		out := newOuts()
		defer out.keep()
		out.v[0] = value
		return b.call(f, object, attribute, out.at(0), bytes)
	}
	desc, err := create(ltDescCreate, ltDescDestroy, 68, 0) // CUBLAS_COMPUTE_32F, scalars of f32
	if err != nil {
		return nil, err
	}
	if err := errlist.Join(set(ltDescSet, desc, ltTransA, 1, 4), set(ltDescSet, desc, ltTransB, 0, 4)); err != nil {
		return nil, err
	}
	m, n, k, typ := uintptr(p.M), uintptr(p.N), uintptr(p.K), blasTypes[p.Type]
	var layouts [3]uintptr
	for i, l := range [3][4]uintptr{{typ, k, n, k}, {typ, k, m, k}, {blasTypes[p.ResultType()], n, m, n}} {
		if layouts[i], err = create(ltLayoutCreate, ltLayoutDestroy, l[:]...); err != nil {
			return nil, err
		}
	}
	preference, err := create(ltPreferenceCreate, ltPreferenceDestroy)
	if err != nil {
		return nil, err
	}
	if err := set(ltPreferenceSet, preference, ltWorkspace, blasWork, 8); err != nil {
		return nil, err
	}
	answer := &args{values: make([]uint64, ltResultBytes/8+1)}
	answer.pin.Pin(&answer.values[0])
	q.close = append(q.close, func() error { answer.pin.Unpin(); return nil })
	at := addressOf(&answer.values[0])
	err = b.call(ltHeuristic, b.light, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, 1, at,
		at+ltResultBytes)
	if err != nil {
		return nil, err
	}
	if uint32(answer.values[ltResultBytes/8]) == 0 || uint32(answer.values[ltStatusAt/8]) != 0 {
		return nil, &NoLibrary{"cuBLASLt knows no algorithm for this product"}
	}
	q.args = []uintptr{b.light, desc, one, w.at, layouts[0], x.at, layouts[1], zero, y.at, layouts[2], y.at, layouts[2],
		at, b.work.at, blasWork, b.r.dev.stream}
	return q, nil
}

// blasFn is a function of the libraries.
type blasFn int

const (
	blasCreate blasFn = iota
	blasDestroy
	blasSetStream
	blasGemm
	ltCreate
	ltDestroy
	ltDescCreate
	ltDescDestroy
	ltDescSet
	ltLayoutCreate
	ltLayoutDestroy
	ltPreferenceCreate
	ltPreferenceDestroy
	ltPreferenceSet
	ltHeuristic
	ltMatmul
	numBLAS
)

// blasSymbols are the functions' names, the first that a library has; those of
// AMD's are of the interface with HIP's own numbers of types.
var blasSymbols = [numBLAS]struct{ amd, nvidia []string }{
	blasCreate:          {[]string{"hipblasCreate"}, []string{"cublasCreate_v2"}},
	blasDestroy:         {[]string{"hipblasDestroy"}, []string{"cublasDestroy_v2"}},
	blasSetStream:       {[]string{"hipblasSetStream"}, []string{"cublasSetStream_v2"}},
	blasGemm:            {[]string{"hipblasGemmEx_v2"}, []string{"cublasGemmEx"}},
	ltCreate:            {nil, []string{"cublasLtCreate"}},
	ltDestroy:           {nil, []string{"cublasLtDestroy"}},
	ltDescCreate:        {nil, []string{"cublasLtMatmulDescCreate"}},
	ltDescDestroy:       {nil, []string{"cublasLtMatmulDescDestroy"}},
	ltDescSet:           {nil, []string{"cublasLtMatmulDescSetAttribute"}},
	ltLayoutCreate:      {nil, []string{"cublasLtMatrixLayoutCreate"}},
	ltLayoutDestroy:     {nil, []string{"cublasLtMatrixLayoutDestroy"}},
	ltPreferenceCreate:  {nil, []string{"cublasLtMatmulPreferenceCreate"}},
	ltPreferenceDestroy: {nil, []string{"cublasLtMatmulPreferenceDestroy"}},
	ltPreferenceSet:     {nil, []string{"cublasLtMatmulPreferenceSetAttribute"}},
	ltHeuristic:         {nil, []string{"cublasLtMatmulAlgoGetHeuristic"}},
	ltMatmul:            {nil, []string{"cublasLtMatmul"}},
}

// names are the names of f in a library, in the order of trial. From its third
// version on hipBLAS has the interface with HIP's types under the plain name.
func (f blasFn) names(who vendor, third bool) []string {
	if who == nvidia {
		return blasSymbols[f].nvidia
	}
	if f == blasGemm && third {
		return append(blasSymbols[f].amd, "hipblasGemmEx")
	}
	return blasSymbols[f].amd
}

// blasLibrary is the loaded library.
type blasLibrary struct {
	who  vendor
	path string
	addr [numBLAS]uintptr
}

func (l *blasLibrary) name(f blasFn) string {
	names := f.names(l.who, true)
	if len(names) == 0 {
		return "such function"
	}
	return names[0]
}
