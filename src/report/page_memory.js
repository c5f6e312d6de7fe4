(function () { "use strict"; report.start(); })();
