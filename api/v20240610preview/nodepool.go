package v20240610preview

import "github.com/hcpmesh/hcpmesh/api/shape"

func nodePool() shape.Field {
	return tracked(
		shape.State("provisioningState"),
		shape.Object("version",
			// Required since 2025-12-23. It is not known of a pool that was made while its control plane ran nothing.
			shape.Value("id").Kept().Always(),
			shape.Value("channelGroup").Default("stable"),
		).Kept(),
		shape.Object("platform",
			shape.Value("subnetId").Kept(),
			shape.Value("vmSize"),
			shape.Value("enableEncryptionAtHost").Default(false).Always(),
			shape.Value("availabilityZone"),
			shape.Object("osDisk",
				shape.Value("sizeGiB").Default(64),
				shape.Value("diskStorageAccountType").OneOf("Premium_LRS", "StandardSSD_LRS", "Standard_LRS").Default("Premium_LRS"),
				shape.Value("encryptionSetId"),
			),
		),
		shape.Value("replicas").AloneShown("autoScaling"),
		shape.Value("autoRepair").Default(true),
		shape.Object("autoScaling",
			shape.Value("min").Always(),
			shape.Value("max").Always(),
		),
		shape.List("labels",
			shape.Value("key"),
			shape.Value("value"),
		),
		shape.List("taints",
			shape.Value("key"),
			shape.Value("value"),
			shape.Value("effect").OneOf("NoSchedule", "PreferNoSchedule", "NoExecute"),
		),
		shape.Value("nodeDrainTimeoutMinutes"),
	)
}
