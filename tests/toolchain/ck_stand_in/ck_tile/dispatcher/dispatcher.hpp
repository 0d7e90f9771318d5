// Stand-in for tests, see README.md.
#pragma once
