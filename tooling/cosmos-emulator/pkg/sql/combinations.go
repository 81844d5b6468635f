package sql

import "github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"

// maxCombinations is the most combinations of values that Points lists; the client's ReadMany asks for a thousand at once.
const maxCombinations = 2000

// KeyCombinations lists the combinations of values that the filter demands of the paths: a document in the result has one of
// them. ok is false when the filter leaves any of the paths open, and then all documents have to be looked at. The
// caller still runs the query over what it finds: Points only saves it from looking elsewhere.
func (q *Query) KeyCombinations(paths [][]string, params map[string]document.Value) (points [][]document.Value, ok bool) {
	if q.where == nil {
		return nil, false
	}
	return q.alternatives(q.where, paths, params)
}

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
	pins := Equalities{}
	q.addEqualities(e, params, pins)
	if points, ok := product(pins, paths); ok {
		return points, true
	}
	if isChain {
		// One conjunct that names its documents is enough.
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

func product(pins Equalities, paths [][]string) ([][]document.Value, bool) {
	points := [][]document.Value{nil}
	for _, path := range paths {
		values, ok := pins[PathKey(path)]
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
