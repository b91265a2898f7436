// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// suffix ends the names of files with samples, which begin with the time in milliseconds.
const suffix = ".prom"

// recorder scrapes an operator.
type recorder struct {
	url, token string
	interval   time.Duration
}

// record scrapes for some time, and passes over scrapes that fail: the operator may not be up yet.
func (r recorder) record(ctx context.Context, directory string, length time.Duration) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("make the directory of the samples: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	for count := 0; ; {
		at := time.Now()
		if content, err := r.scrape(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "not scraped:", err)
		} else if err := os.WriteFile(filepath.Join(directory, fmt.Sprint(at.UnixMilli(), suffix)), content, 0o644); err != nil {
			return fmt.Errorf("keep samples: %w", err)
		} else {
			count++
		}
		select {
		case <-ctx.Done():
			if count == 0 {
				return fmt.Errorf("scrape %s: nothing was had in %s", r.url, length)
			}
			return nil
		case <-ticker.C:
		}
	}
}

func (r recorder) scrape(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	// Nobody has signed the certificate of an operator on a local cluster.
	client := http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return io.ReadAll(response.Body)
}
