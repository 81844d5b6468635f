package database

import "strings"

// The kinds of names that only one cluster of a subscription may use.
const (
	ManagedResourceGroupReservation = "managedResourceGroup"
	SubnetReservation               = "subnet"
	NetworkSecurityGroupReservation = "networkSecurityGroup"
)

// ExternalAuthReservation limits a cluster to one external authentication. The reserved name is the cluster's resource
// ID.
const ExternalAuthReservation = "externalAuth"

// ClusterReservations returns the reservations of a cluster by key. The frontend creates them with the cluster; the
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
	quotaReservation(key, cluster, reservations)
	return reservations
}

// ExternalAuthReservations returns the reservations of an external authentication by key. The frontend creates them
// with the external authentication; the backend removes them with it.
func ExternalAuthReservations(key Key, uid string) map[Key]ReservationDocument {
	cluster := key.ResourceID
	for range 2 {
		if i := strings.LastIndexByte(cluster, '/'); i >= 0 {
			cluster = cluster[:i]
		}
	}
	return map[Key]ReservationDocument{
		ReservationKey(key.SubscriptionID, ExternalAuthReservation, cluster): {
			Kind: ExternalAuthReservation, Name: Key{ResourceID: cluster}.lower(), OwnerResourceID: key.ResourceID, OwnerUID: uid,
		},
	}
}
