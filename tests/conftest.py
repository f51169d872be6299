"""Eight virtual workers on one CPU, before any backend starts."""

import jaxcompress

jaxcompress.virtual_cpu_workers(8)
