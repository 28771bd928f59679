package jinja

// The syntax tree. Expressions evaluate themselves (eval.go), statements run themselves (exec.go).

type expr interface {
	eval(in *interp, s *scope) any
}

type stmt interface {
	exec(in *interp, s *scope, out *buffer) signal
}

// signal says how a statement ended.
type signal uint8

const (
	goOn signal = iota
	breakLoop
	continueLoop
)

type (
	constExpr struct{ value any }
	nameExpr  struct{ name string }
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	attrExpr  struct {
		of   expr
		name string
	}
	itemExpr  struct{ of, key expr }
	sliceExpr struct{ from, to, step expr } // nil: not given
	callExpr  struct {
		of   expr
		args callArgs
		line int
	}
	filterExpr struct {
		of   expr // nil: the text of the block
		name string
		args callArgs
		soft bool // an unknown name is an error of the run only
		line int
	}
	testExpr struct {
		of   expr
		name string
		args callArgs
		soft bool
		line int
	}
	unaryExpr struct {
		op string
		x  expr
	}
	binaryExpr struct {
		op   string
		x, y expr
		line int
	}
	logicExpr struct {
		or   bool
		x, y expr
	}
	compareExpr struct {
		x   expr
		ops []operand
	}
	operand struct {
		op string
		y  expr
	}
	concatExpr struct{ items []expr }
	condExpr   struct {
		test, then, or expr // or nil: undefined
		line           int
	}
)

// callArgs are the arguments of a call, a filter or a test.
type callArgs struct {
	args    []expr
	names   []string
	named   []expr
	star    expr
	starred expr
}

type (
	dataStmt   struct{ text string }
	outputStmt struct {
		x    expr
		line int
	}
	ifStmt struct {
		tests []expr
		then  [][]stmt
		or    []stmt
		line  int
	}
	forStmt struct {
		target    expr
		iter      expr
		test      expr
		body, or  []stmt
		recursive bool
		line      int
	}
	setStmt struct {
		target expr
		x      expr
		line   int
	}
	setBlockStmt struct {
		target expr
		filter *filterExpr
		body   []stmt
		line   int
	}
	macroStmt struct {
		macro *macroDef
		line  int
	}
	callStmt struct {
		caller *macroDef
		call   *callExpr
		line   int
	}
	filterStmt struct {
		filter *filterExpr
		body   []stmt
		line   int
	}
	withStmt struct {
		targets, values []expr
		body            []stmt
	}
	scopeStmt  struct{ body []stmt } // generation
	escapeStmt struct {
		on   expr
		body []stmt
	}
	blockStmt struct {
		name   string
		scoped bool
		body   []stmt
	}
	loaderStmt struct{ line int } // include, import, from, extends: there is no loader
	jumpStmt   struct{ how signal }
)

// macroDef is what a macro or the body of a call block is.
type macroDef struct {
	name                    string
	params                  []string
	defaults                []expr // of the last params
	body                    []stmt
	caller, kwargs, varargs bool // the body names them
}

// nsTarget is the target of a set: an attribute of a namespace.
type nsTarget struct{ ns, attr string }
