// Package sql implements the queries that hcpmesh sends to Azure Cosmos DB for NoSQL. Parse returns a Query, and Run returns pages of
// its results from a stream of documents.
//
// Values follow the service's rules for undefined: a comparison of different types is undefined, a filter accepts only
// true, and a projection omits undefined values. Parse returns an *Error for everything that this package does not
// support. No query is executed with a different meaning.
package sql

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// supported lists all constructs, for errors.
const supported = "The emulator supports SELECT of * or of properties and objects of properties with AS, FROM with one name, WHERE with AND, OR, NOT, " +
	"=, !=, <, <=, >, >=, IN, IS_DEFINED, STARTSWITH, STRINGEQUALS, parameters, strings without escapes, true and false, and ORDER BY one property."

// Query is a parsed query. It can be run repeatedly and concurrently.
type Query struct {
	items  []selectItem // empty for *
	where  expr         // nil without a filter
	order  *path        // nil without an order
	desc   bool
	params []string
}

// selectItem is one item of the SELECT list.
type selectItem struct {
	name       string
	expression expr
}

// Ordered reports whether the query has an order. The service's gateway rejects an order over more than one logical partition.
func (q *Query) Ordered() bool { return q.order != nil }

// Error is the error of a query that cannot be run. The service responds to it with 400.
type Error struct {
	// Code is the service's code: SC1001 to SC1003 for syntax, SC2001 for names, SC2005 and SC2050 for functions, SC2011 for parameters.
	Code    string
	Message string
	At      int // byte offset; -1 means the whole query
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// syntaxError returns the error for an unexpected token.
func syntaxError(t token) error {
	near := fmt.Sprintf("incorrect syntax near '%s'", t.raw)
	if t.kind == tokenEnd {
		near = "unexpected end of the query"
	}
	return &Error{Code: "SC1001", Message: "Syntax error, " + near + ". " + supported, At: t.at}
}

// env holds the document and the parameters of a query.
type env struct {
	doc    document.Value
	params map[string]document.Value
}

// expr is a node of an expression.
type expr interface{ eval(e *env) document.Value }

type (
	literal struct{ value document.Value }
	param   struct{ name string }
	// path is a path of properties of the document.
	path     struct{ names []string }
	objectOf []selectItem
	not      struct{ operand expr }
	// chain is a chain of AND or OR.
	chain struct {
		or    bool
		items []expr
	}
	comparison struct {
		op          string
		left, right expr
	}
	in struct {
		operand expr
		list    []expr
	}
	call struct {
		name string
		args []expr
	}
)
