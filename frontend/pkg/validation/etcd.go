package validation

import "github.com/hcpmesh/hcpmesh/api/hub"

const (
	// customerManaged is the keyManagementMode with a key that the customer manages, the only one that is supported.
	customerManaged = "CustomerManaged"
	// kmsEncryption is the only encryptionType of a key that the customer manages.
	kmsEncryption = "KMS"
)

// dataEncryption requires a key that the customer manages. Clusters that were created with a platform-managed key keep it,
// because rules are ratcheting.
func dataEncryption(report *report, encryption *hub.DataEncryption) {
	const field = "properties.etcd.dataEncryption."
	managed := encryption.CustomerManaged
	if encryption.KeyManagementMode != customerManaged {
		if encryption.KeyManagementMode == "" {
			report.required(field + "keyManagementMode")
		}
		report.unsupported(field+"keyManagementMode", encryption.KeyManagementMode, customerManaged)
	}
	member(report, field+"customerManaged", managed != nil, "keyManagementMode", encryption.KeyManagementMode, customerManaged)
	if managed == nil {
		return
	}
	if managed.EncryptionType != kmsEncryption {
		report.unsupported(field+"customerManaged.encryptionType", managed.EncryptionType, kmsEncryption)
	}
	const kms = field + "customerManaged.kms"
	member(report, kms, managed.KMS != nil, "encryptionType", managed.EncryptionType, kmsEncryption)
	if managed.KMS == nil {
		return
	}
	report.withinBytes(kms+".vaultName", managed.KMS.VaultName, 255)
	requiredText(report, kms+".visibility", string(managed.KMS.Visibility))
	report.withinBytes(kms+".activeKey.name", managed.KMS.ActiveKey.Name, 255)
	report.withinBytes(kms+".activeKey.version", managed.KMS.ActiveKey.Version, 255)
}

// member validates a member of a union: it must be given if the discriminator has the value wanted, and only then.
func member(report *report, field string, given bool, discriminator, value, wanted string) {
	switch {
	case value == wanted && !given:
		report.invalid(field, "", "must be specified when %s is %q", discriminator, wanted)
	case value != wanted && given:
		report.invalid(field, "", "may only be specified when %s is %q", discriminator, wanted)
	}
}
