package database

// The kinds of reservations: what only one cluster of a subscription may use.
const (
	ManagedResourceGroupReservation = "managedResourceGroup"
	SubnetReservation               = "subnet"
	NetworkSecurityGroupReservation = "networkSecurityGroup"
)

// ClusterReservations is what a cluster reserves, each with its key. The frontend creates them with the cluster, the
// backend removes them with it.
func ClusterReservations(key Key, cluster *ClusterDocument) map[Key]ReservationDocument {
	reservations := map[Key]ReservationDocument{}
	platform := cluster.Cluster.Properties.Platform
	for kind, name := range map[string]string{
		ManagedResourceGroupReservation: platform.ManagedResourceGroup,
		SubnetReservation:               platform.SubnetID,
		NetworkSecurityGroupReservation: platform.NetworkSecurityGroupID,
	} {
		if name == "" {
			continue
		}
		reserved := ReservationKey(key.SubscriptionID, kind, name)
		reservations[reserved] = ReservationDocument{
			Kind: kind, Name: Key{ResourceID: name}.lower(), OwnerResourceID: key.ResourceID, OwnerUID: cluster.UID,
		}
	}
	return reservations
}
