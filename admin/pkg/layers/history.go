package layers

import (
	"context"
	"maps"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// History holds since when components are away, by name. All replicas of admin share it, and it survives their restarts.
type History interface {
	// Update calls change with the stored absences and stores what it returns true for. It calls change again if another replica was
	// faster.
	Update(ctx context.Context, change func(away map[string]database.ComponentAbsence) bool) error
}

// skew is by how much the observations of two replicas may differ: each asks once per period.
const skew = 2 * period

// share brings the transitions of this replica together with those of others. A replica reads and writes the history only after a
// transition, and after its start. What cannot be stored is tried again after the next round.
func (m *Monitor) share(ctx context.Context) {
	changed := m.takeUnshared()
	if len(changed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.deadline)
	defer cancel()
	var adopted map[string]database.ComponentAbsence
	err := m.history.Update(ctx, func(away map[string]database.ComponentAbsence) bool {
		var write bool
		adopted, write = merge(away, changed)
		return write
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, before := range changed {
		now := m.known[name]
		stored, found := adopted[name]
		switch {
		case err != nil:
			m.unshared[name] = true
		case found && now.Away() && now.Since.Equal(before.Since):
			now.Since = stored.Since
			if now.LastReady.IsZero() {
				now.LastReady = stored.LastReady
			}
			m.known[name] = now
		}
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("storing since when components are away failed; it is tried again", logkey.Error, err)
	}
}

// takeUnshared returns the components whose transition is not shared yet; none while Cosmos DB, which holds the history, is away.
func (m *Monitor) takeUnshared() map[string]adminv1.Component {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.history == nil || len(m.unshared) == 0 || m.known[cosmosDB].Away() {
		return nil
	}
	changed := map[string]adminv1.Component{}
	for name := range m.unshared {
		changed[name] = m.known[name]
	}
	clear(m.unshared)
	return changed
}

// merge changes the stored absences by what a replica observed. It returns the absences that the replica adopts, and whether the stored
// ones changed. The replica that observes an outage first decides its beginning. An absence from before this replica last observed the
// component as ready belongs to an earlier outage, whose end no replica has stored. Nothing is stored of an outage with an unknown
// beginning.
func merge(away map[string]database.ComponentAbsence, changed map[string]adminv1.Component) (adopted map[string]database.ComponentAbsence, write bool) {
	before := maps.Clone(away)
	adopted = map[string]database.ComponentAbsence{}
	for name, c := range changed {
		stored, found := away[name]
		switch {
		case !c.Away():
			delete(away, name)
		case found && stored.Since.After(c.LastReady.Add(-skew)):
			adopted[name] = stored
		case !c.Since.IsZero():
			away[name] = database.ComponentAbsence{Since: c.Since, LastReady: c.LastReady}
		}
	}
	return adopted, !maps.EqualFunc(before, away, func(a, b database.ComponentAbsence) bool {
		return a.Since.Equal(b.Since) && a.LastReady.Equal(b.LastReady)
	})
}

// StoredHistory is the History in Cosmos DB.
type StoredHistory struct{ Database *database.DB }

// Update implements History.
func (h StoredHistory) Update(ctx context.Context, change func(away map[string]database.ComponentAbsence) bool) error {
	return database.Retry(ctx, func(ctx context.Context) error {
		key, batch := database.ComponentAbsencesKey(), h.Database.NewBatch(database.AdminPartition)
		item, err := h.Database.ComponentAbsences().Find(ctx, key)
		if err != nil {
			return err
		}
		if item == nil {
			absences := map[string]database.ComponentAbsence{}
			if !change(absences) {
				return nil
			}
			database.Create(batch, h.Database.ComponentAbsences(), key, database.ComponentAbsencesDocument{Away: absences})
			return batch.Commit(ctx)
		}
		if item.Value.Away == nil {
			item.Value.Away = map[string]database.ComponentAbsence{}
		}
		if !change(item.Value.Away) {
			return nil
		}
		database.Replace(batch, item)
		return batch.Commit(ctx)
	})
}
