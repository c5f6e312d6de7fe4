/* placeholder of the first skeleton; the room's first commit replaces it */
extern int hr__room_placeholder_recipe;
int hr__room_placeholder_recipe;
