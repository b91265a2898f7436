// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Chart describes a picture: panels beside each other.
type Chart struct {
	// File is the name of the file, without a directory.
	File   string  `json:"file"`
	Panels []Panel `json:"panels"`
}

// Panel is a pair of axes with lines.
type Panel struct {
	Title string `json:"title"`
	X     Axis   `json:"x"`
	// Y begins at zero.
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
}

// Axis is one of the two axes of a panel.
type Axis struct {
	// Label has the unit.
	Label string `json:"label"`
	// Logarithmic axes show values above zero only.
	Logarithmic bool `json:"logarithmic,omitempty"`
}

// Series is a line through medians.
type Series struct {
	Name string `json:"name"`
	// Place decides the colour and the mark, so that the same name looks alike in all panels.
	Place  int     `json:"place"`
	Points []Point `json:"points"`
}

// Point is the median of all runs at X. A bar shows the least and the greatest.
type Point struct {
	X        float64 `json:"x"`
	Median   float64 `json:"median"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
}

// check refuses what cannot be drawn.
func (c Chart) check() error {
	if c.File == "" || c.File != filepath.Base(c.File) {
		return fmt.Errorf("%q is not the name of a file", c.File)
	}
	if len(c.Panels) == 0 {
		return fmt.Errorf("%s has no panels", c.File)
	}
	for _, panel := range c.Panels {
		if err := panel.check(); err != nil {
			return fmt.Errorf("%s, %q: %w", c.File, panel.Title, err)
		}
	}
	return nil
}

func (p Panel) check() error {
	if p.X.Label == "" || p.Y.Label == "" {
		return errors.New("both axes need a label")
	}
	if p.Y.Logarithmic {
		return errors.New("the upright axis begins at zero, and cannot be logarithmic")
	}
	if len(p.Series) == 0 {
		return errors.New("there is no series")
	}
	for _, series := range p.Series {
		if len(series.Points) == 0 {
			return fmt.Errorf("series %s has no points", series.Name)
		}
		for _, point := range series.Points {
			if p.X.Logarithmic && point.X <= 0 {
				return fmt.Errorf("series %s has a point at %g, and the axis is logarithmic", series.Name, point.X)
			}
			if point.Least < 0 || point.Least > point.Median || point.Median > point.Greatest {
				return fmt.Errorf("series %s has a median of %g in a range of %g to %g", series.Name, point.Median, point.Least, point.Greatest)
			}
		}
	}
	return nil
}
