package validation

import "github.com/hcpmesh/hcpmesh/api/hub"

// customerManaged is the keyManagementMode with a key that the customer manages.
const customerManaged = "CustomerManaged"

func dataEncryption(report *report, encryption *hub.DataEncryption) {
	const field = "properties.etcd.dataEncryption."
	managed := encryption.CustomerManaged
	switch encryption.KeyManagementMode {
	case "":
		report.required(field + "keyManagementMode")
	case customerManaged:
		if managed == nil {
			report.required(field + "customerManaged")
		}
	default:
		if managed != nil {
			report.forbidden(field+"customerManaged", encryption.KeyManagementMode, "must not be given unless keyManagementMode is %s", customerManaged)
		}
	}
	if managed == nil {
		return
	}
	requiredText(report, field+"customerManaged.encryptionType", managed.EncryptionType)
	const kms = field + "customerManaged.kms"
	if managed.KMS == nil {
		report.required(kms)
		return
	}
	report.within(kms+".vaultName", managed.KMS.VaultName, 255)
	requiredText(report, kms+".visibility", string(managed.KMS.Visibility))
	report.within(kms+".activeKey.name", managed.KMS.ActiveKey.Name, 255)
	report.within(kms+".activeKey.version", managed.KMS.ActiveKey.Version, 255)
}
