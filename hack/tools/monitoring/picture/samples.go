// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/sidecar-termination/operator/hack/tools/monitoring/dashboard"
)

// What the Prometheus operator says of the one copy on a local cluster.
var target = map[string]string{
	"namespace": "sidecar-termination-system",
	"job":       "sidecar-termination-controller-manager-metrics",
	"instance":  "10.0.0.7:8443",
}

// samples are what was scraped, to be asked by PromQL.
type samples struct {
	directory  string
	database   *tsdb.DB
	engine     *promql.Engine
	start, end time.Time
	values     dashboard.Values
}

// points is how many times a panel is evaluated.
const points = 160

// load reads the samples of a directory into a database of Prometheus.
func load(directory string) (*samples, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*"+suffix))
	if err != nil || len(files) < 2 {
		return nil, fmt.Errorf("%q holds no samples; record some first", directory)
	}
	slices.Sort(files)
	temporary, err := os.MkdirTemp("", "samples-")
	if err != nil {
		return nil, fmt.Errorf("make a place for the database: %w", err)
	}
	s := &samples{directory: temporary}
	if s.database, err = tsdb.Open(temporary, promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database: %w", err), os.RemoveAll(temporary))
	}
	var times []time.Time
	for _, file := range files {
		at, err := s.append(file)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read %s: %w", file, err), s.Close())
		}
		times = append(times, at)
	}
	s.start, s.end = times[0], times[len(times)-1]
	s.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	s.values = dashboard.Values{
		Namespace: target["namespace"], Job: target["job"], Range: s.end.Sub(s.start).Round(time.Second), RateInterval: time.Minute,
	}
	return s, nil
}

// Close removes the database.
func (s *samples) Close() error {
	return errors.Join(s.database.Close(), os.RemoveAll(s.directory))
}

// append adds one scrape.
func (s *samples) append(file string) (time.Time, error) {
	milliseconds, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), suffix), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the name is no time: %w", err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	appender := s.database.Appender(context.Background())
	parse := textparse.NewPromParser(content, labels.NewSymbolTable(), false)
	for {
		entry, err := parse.Next()
		if errors.Is(err, io.EOF) {
			return time.UnixMilli(milliseconds), appender.Commit()
		}
		if err != nil {
			return time.Time{}, errors.Join(err, appender.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parse.Series()
		var series labels.Labels
		parse.Labels(&series)
		builder := labels.NewBuilder(series)
		for name, content := range target {
			builder.Set(name, content)
		}
		if _, err := appender.Append(storage.SeriesRef(0), builder.Labels(), milliseconds, value); err != nil {
			return time.Time{}, errors.Join(err, appender.Rollback())
		}
	}
}

// now evaluates an expression at the end.
func (s *samples) now(ctx context.Context, expression string) (promql.Vector, error) {
	query, err := s.engine.NewInstantQuery(ctx, s.database, nil, s.values.Expand(expression), s.end)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(ctx).Vector()
}

// over evaluates an expression over all the time.
func (s *samples) over(ctx context.Context, expression string) (promql.Matrix, error) {
	query, err := s.engine.NewRangeQuery(ctx, s.database, nil, s.values.Expand(expression), s.start, s.end, s.step())
	if err != nil {
		return nil, err
	}
	matrix, err := query.Exec(ctx).Matrix()
	// The query's memory is used again once it is closed, and the program ends soon.
	return matrix, err
}

func (s *samples) step() time.Duration { return s.end.Sub(s.start) / points }
