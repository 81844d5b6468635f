package fleet

import (
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Level returns the level of a credential. A customer's credential, and one of an SRE from before levels existed, has the rights of
// the level admin. It is empty for a level that this release does not support.
func Level(spec *csv1.BreakGlassCredentialSpec) adminv1.Level {
	switch spec.GetLevel() {
	case csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER:
		return adminv1.LevelReader
	case csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN, csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_UNSPECIFIED:
		return adminv1.LevelAdmin
	}
	return ""
}
