// SPDX-License-Identifier: Apache-2.0

// Package dashboard reads the parts of a Grafana dashboard that say what is shown and where.
package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// File is the dashboard, seen from the root of the repository.
const File = "config/components/dashboard/dashboard.json"

// Dashboard is a dashboard of Grafana.
type Dashboard struct {
	UID        string     `json:"uid"`
	Title      string     `json:"title"`
	Panels     []Panel    `json:"panels"`
	Templating Templating `json:"templating"`
}

// Templating holds the variables of a dashboard.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable is chosen at the top of a dashboard. Query is a text or, for what a data source is asked, an object.
type Variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
}

// Panel is a picture, or the title of a row of them.
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Datasource  *Datasource `json:"datasource"`
	Position    Position    `json:"gridPos"`
	FieldConfig FieldConfig `json:"fieldConfig"`
	Options     Options     `json:"options"`
	Targets     []Target    `json:"targets"`
}

// Datasource says who is asked.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Position is where a panel is, in the 24 columns of the grid.
type Position struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	Width  int `json:"w"`
	Height int `json:"h"`
}

// FieldConfig says how values are written and drawn.
type FieldConfig struct {
	Defaults struct {
		Unit       string `json:"unit"`
		Thresholds struct {
			Steps []Threshold `json:"steps"`
		} `json:"thresholds"`
		Custom struct {
			Stacking struct {
				Mode string `json:"mode"`
			} `json:"stacking"`
		} `json:"custom"`
	} `json:"defaults"`
}

// Threshold is the value from which a colour is used. The first one has none.
type Threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// Options are those of a heatmap that bear on how its axis is written.
type Options struct {
	YAxis struct {
		Unit string `json:"unit"`
	} `json:"yAxis"`
}

// Target is one query of a panel.
type Target struct {
	Expression string `json:"expr"`
	Legend     string `json:"legendFormat"`
	Instant    bool   `json:"instant"`
}

// Read reads a dashboard.
func Read(file string) (*Dashboard, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	result := &Dashboard{}
	if err := json.Unmarshal(content, result); err != nil {
		return nil, fmt.Errorf("understand the dashboard %s: %w", file, err)
	}
	return result, nil
}

// Values are what the variables of a dashboard stand for.
type Values struct {
	Namespace, Job string
	// RateInterval is what Grafana takes four scrapes for, and Range all the time shown.
	RateInterval, Range time.Duration
}

// Expand puts the values in the place of the variables of an expression.
func (v Values) Expand(expression string) string {
	return strings.NewReplacer(
		"$__rate_interval", model.Duration(v.RateInterval).String(),
		"$__range", model.Duration(v.Range).String(),
		"$namespace", v.Namespace,
		"$job", v.Job,
	).Replace(expression)
}
