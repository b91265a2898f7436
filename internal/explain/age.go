// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age formats a duration like kubectl.
func Age(age time.Duration) string {
	return duration.HumanDuration(max(age, 0))
}
