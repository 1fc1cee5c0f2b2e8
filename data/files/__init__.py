"""Files in and out: the home folder, snapshots, people's rows, what runs read and write."""
