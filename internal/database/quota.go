package database

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// ClusterQuotaReservation limits the clusters of a subscription. The reserved name is the number of a slot. A cluster holds one
// slot from the batch that creates it to the batch that removes it, so that a quota is never exceeded and nothing is lost when
// a process dies between two writes. Creations conflict only if they choose the same slot.
const ClusterQuotaReservation = "clusterQuota"

// MaxClusterQuota is the largest quota. A creation reads the slots that are held.
const MaxClusterQuota = 5000

// quotaReservation adds the reservation of the slot that a cluster holds.
func quotaReservation(key Key, cluster *ClusterDocument, reservations map[Key]ReservationDocument) {
	if cluster.QuotaSlot == nil {
		return
	}
	slot := strconv.Itoa(*cluster.QuotaSlot)
	reservations[ReservationKey(key.SubscriptionID, ClusterQuotaReservation, slot)] = ReservationDocument{
		Kind: ClusterQuotaReservation, Name: slot, OwnerResourceID: key.ResourceID, OwnerUID: cluster.UID,
	}
}

// ClusterUsage returns the number of clusters of a subscription that hold a slot, and the slots from which a creation may
// choose. Clusters that are being deleted hold theirs.
//
// There are as many free slots as clusters may be created. If the quota was lowered, slots above it may be held. Creations with
// different views of the usage still do not exceed the quota: whoever sees more usage chooses from fewer of the same slots.
func (db *DB) ClusterUsage(ctx context.Context, subscriptionID string, quota int) (used int, free []int, err error) {
	held := map[int]bool{}
	prefix := ReservationKey(subscriptionID, ClusterQuotaReservation, "").ResourceID
	err = db.Reservations().ForEach(ctx, subscriptionID, prefix, func(item *Item[ReservationDocument]) error {
		slot, err := strconv.Atoi(item.Value.Name)
		if err != nil {
			return fmt.Errorf("reading the slot of the reservation %s: %w", item.Key.ResourceID, err)
		}
		held[slot] = true
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	for slot := 0; slot < quota && len(free) < quota-len(held); slot++ {
		if !held[slot] {
			free = append(free, slot)
		}
	}
	return len(held), free, nil
}

// FreeClusterSlot returns a free slot below the quota that it finds with a few reads of single documents; false if these are
// held. It is sufficient if no slot above the quota can be held. It reads more slots of a larger quota, because then
// ClusterUsage lists more: a read needs about as much CPU time as five listed slots.
func (db *DB) FreeClusterSlot(ctx context.Context, subscriptionID string, quota int) (slot int, found bool, err error) {
	for range min(quota, 2+quota/250) {
		slot := rand.N(quota)
		held, err := db.Reservations().Find(ctx, ReservationKey(subscriptionID, ClusterQuotaReservation, strconv.Itoa(slot)))
		if err != nil {
			return 0, false, err
		}
		if held == nil || held.Removed != nil {
			return slot, true, nil
		}
	}
	return 0, false, nil
}
