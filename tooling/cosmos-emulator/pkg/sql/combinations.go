package sql

import "github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"

// maxCombinations bounds the result of KeyCombinations. ReadMany of the client requests a thousand items at once.
const maxCombinations = 2000

// KeyCombinations returns the combinations of values that the filter requires of the paths: every document in the result
// has one of them. ok is false if the filter does not restrict all paths; the caller must then read all documents. The
// caller must still apply the filter to the documents with these values.
func (q *Query) KeyCombinations(paths [][]string, params map[string]document.Value) (points [][]document.Value, ok bool) {
	if q.where == nil {
		return nil, false
	}
	return q.alternatives(q.where, paths, params)
}

// alternatives returns the combinations that an expression requires.
func (q *Query) alternatives(e expr, paths [][]string, params map[string]document.Value) ([][]document.Value, bool) {
	chain, isChain := e.(*logical)
	if isChain && chain.op == "OR" {
		var all [][]document.Value
		for _, item := range chain.items {
			some, ok := q.alternatives(item, paths, params)
			if !ok || len(all)+len(some) > maxCombinations {
				return nil, false
			}
			all = append(all, some...)
		}
		return all, true
	}
	equalities := Equalities{}
	q.addEqualities(e, params, equalities)
	if points, ok := product(equalities, paths); ok {
		return points, true
	}
	if isChain {
		// One conjunct with alternatives is sufficient.
		for _, item := range chain.items {
			if inner, is := item.(*logical); is && inner.op == "OR" {
				if points, ok := q.alternatives(item, paths, params); ok {
					return points, true
				}
			}
		}
	}
	return nil, false
}

// product returns the combinations of the values of the paths.
func product(equalities Equalities, paths [][]string) ([][]document.Value, bool) {
	points := [][]document.Value{nil}
	for _, path := range paths {
		values, ok := equalities[PathKey(path)]
		if !ok || len(values)*len(points) > maxCombinations {
			return nil, false
		}
		next := make([][]document.Value, 0, len(values)*len(points))
		for _, p := range points {
			for _, v := range values {
				next = append(next, append(p[:len(p):len(p)], v))
			}
		}
		points = next
	}
	return points, true
}
