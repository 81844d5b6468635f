package database

import (
	"context"
	"fmt"
	"time"
)

// FollowOptions describe a follower of the change feed that the replicas of a service share.
type FollowOptions struct {
	FeedOptions
	// Name of the follower, under which its positions are kept; Owner of the replica, see LeaseOptions.
	Name, Owner string
	// LeaseDuration, see LeaseOptions.Duration.
	LeaseDuration time.Duration
}

// Follow calls handler for every change of the container Resources there ever was, in exactly one replica at a time,
// until ctx ends. Each range of the feed has a durable position; after a crash the changes since it was last saved come
// again, to whichever replica takes the range over. The handler is called for several ranges at once.
func (db *DB) Follow(ctx context.Context, options FollowOptions, handler Handler) error {
	options.complete()
	names := map[string]*feed{}
	var leases []string
	err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
		spans, err := client.resources.ReadFeedRanges(ctx, nil)
		if err != nil {
			return err
		}
		names, leases = map[string]*feed{}, nil
		for _, span := range spans {
			name := fmt.Sprintf("%s-%s", span.MinInclusive, span.MaxExclusive)
			names[name] = &feed{db: db, options: options.FeedOptions, span: span}
			leases = append(leases, name)
		}
		return nil
	})
	if err != nil {
		return failure(err, "reading the ranges of the change feed")
	}
	return db.RunLeases(ctx, LeaseOptions{
		Group: "feed:" + options.Name, Owner: options.Owner, Names: leases, Duration: options.LeaseDuration, Log: options.Log,
	}, func(ctx context.Context, lease *Lease) {
		f := *names[lease.Name]
		f.position = lease.Position()
		// It returns when the lease is lost, with nothing to say but that.
		_ = f.follow(ctx, handler, lease.SetPosition)
	})
}
