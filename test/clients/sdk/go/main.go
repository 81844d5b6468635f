// Command drive is a customer with the typed client that is generated from our OpenAPI document of one api-version, unmodified:
// what armredhatopenshifthcp is made of, azcore's pollers and pagers, and azidentity. It lives a day of a region through ARM,
// asserts what it sees at each step, and that nothing of an answer is lost or missing in the typed result.
//
//	drive -models FOLDER < task.json
//
// The task says where ARM is, who the customer is and what to make; test/e2e writes it. -models is the client's source, which
// alone says what it requires. Which api-version is driven is told apart by build tags.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	models := flag.String("models", "", "`folder` of the client's source")
	resume := flag.Bool("resume", false, "wait for the creation that the task's poller follows, and nothing else")
	flag.Parse()
	if err := run(context.Background(), *models, *resume); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, models string, resume bool) error {
	var task task
	if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
		return fmt.Errorf("reading the task: %w", err)
	}
	judge, err := newJudge(models)
	if err != nil {
		return err
	}
	d, err := newDay(task, judge)
	if err != nil {
		return err
	}
	if resume {
		return d.finishResumed(ctx)
	}
	return d.live(ctx)
}
