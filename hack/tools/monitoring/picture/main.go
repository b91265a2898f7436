// SPDX-License-Identifier: Apache-2.0

// Command picture draws the dashboard as Grafana would, from samples of a real operator: it has Prometheus's engine
// evaluate the expressions of the dashboard, so that the picture cannot show what the dashboard does not.
//
//	go -C hack/tools/monitoring run ./picture record --samples /tmp/samples --for 7m
//	go -C hack/tools/monitoring run ./picture draw --samples /tmp/samples
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sidecar-termination/operator/hack/tools/monitoring/dashboard"
)

// repository is where the command runs, seen from this module.
const repository = "../../.."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("say what to do: record or draw")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	samples := flags.String("samples", "", "directory with what was scraped, a file for each time")
	switch arguments[0] {
	case "record":
		r := recorder{}
		flags.StringVar(&r.url, "url", "https://127.0.0.1:8443/metrics", "what to scrape")
		flags.StringVar(&r.token, "token", os.Getenv("TOKEN"), "token of somebody who may get it; default $TOKEN")
		flags.DurationVar(&r.interval, "interval", 5*time.Second, "time between two scrapes")
		length := flags.Duration("for", 7*time.Minute, "time to go on for")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return r.record(ctx, *samples, *length)
	case "draw":
		output := flags.String("output", filepath.Join(repository, "docs/images/dashboard.svg"), "file to write")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		board, err := dashboard.Read(filepath.Join(repository, dashboard.File))
		if err != nil {
			return err
		}
		recorded, err := load(*samples)
		if err != nil {
			return err
		}
		defer func() { _ = recorded.Close() }()
		picture, err := draw(ctx, board, recorded)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(*output), 0o755); err != nil {
			return fmt.Errorf("make the directory of the picture: %w", err)
		}
		return os.WriteFile(*output, picture, 0o644)
	}
	return fmt.Errorf("%q is not known: say record or draw", arguments[0])
}
