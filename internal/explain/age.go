// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age writes a duration as kubectl does.
func Age(age time.Duration) string {
	return duration.HumanDuration(max(age, 0))
}
