// Command drive tests the unmodified typed client that is generated from our OpenAPI document of one api-version, with azcore's
// pollers and pagers and azidentity. It performs the operations of a customer through ARM and asserts the result of each step,
// and that the typed result has exactly the content of the response.
//
//	drive -models FOLDER < task.json
//
// The task contains the endpoint of ARM, the credentials and the resources to create; test/e2e writes it. -models is the source of
// the client, whose comments list the required fields. A build tag selects the api-version.
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
