package version

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

func nodePool() shape.Field {
	// The service does not read the identities of node pools.
	identityIDs := []shape.Field{shape.Value("clientId").NotShown(), shape.Value("principalId").NotShown()}
	return tracked(identityIDs,
		shape.State("provisioningState"),
		shape.Object("version",
			// Later versions require it in responses. It is empty for a pool of a release that did not require it in requests.
			shape.Value("id").KeepIfAbsent().WriteZero(),
			shape.Value("channelGroup").Default("stable"),
		).KeepIfAbsent(),
		shape.Object("platform",
			shape.Value("subnetId").KeepIfAbsent(),
			shape.Value("vmSize"),
			shape.Value("enableEncryptionAtHost").Default(false).WriteZero(),
			shape.Value("availabilityZone"),
			shape.Object("osDisk",
				shape.Value("sizeGiB").Default(64),
				shape.Value("diskStorageAccountType").OneOf("Premium_LRS", "StandardSSD_LRS", "Standard_LRS").Default("Premium_LRS").DefaultIfNull(),
				shape.Value("encryptionSetId"),
			),
		),
		shape.Value("replicas"),
		shape.Value("autoRepair").Default(true).RequiredIfNull(),
		shape.Object("autoScaling",
			shape.Value("min"),
			shape.Value("max"),
		).WriteZero(),
		shape.List("labels",
			shape.Value("key"),
			shape.Value("value"),
		).AtMost(hub.MaxLabels),
		shape.List("taints",
			shape.Value("key"),
			shape.Value("value"),
			shape.Value("effect").OneOf("NoSchedule", "PreferNoSchedule", "NoExecute"),
		).AtMost(hub.MaxTaints),
		shape.Value("nodeDrainTimeoutMinutes"),
	)
}
